"""An attention of one's own, in the many ways that PyTorch lets one write it."""

import math

import torch
from torch.nn import functional as F


class Own(torch.nn.Module):
    """A causal attention of one's own, in one of many spellings."""

    def __init__(self, spelling, d=12, heads=4, groups=2):
        super().__init__()
        self.spelling, self.heads, self.groups = spelling, heads, groups
        m = d // heads
        self.query, self.key = torch.nn.Linear(d, d), torch.nn.Linear(d, groups * m)
        self.value = torch.nn.Linear(d, groups * m)
        self.seen = None

    def forward(self, x):
        B, T, _ = x.shape
        q = self.query(x).view(B, T, self.heads, -1).transpose(1, 2) * 2
        k, v = (map(x).view(B, T, self.groups, -1).transpose(1, 2) for map in (self.key, self.value))
        each = self.heads // self.groups
        hidden = torch.ones(T, T, dtype=torch.bool).triu(1)
        if self.spelling == "gqa":
            return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        k, v = k.repeat_interleave(each, 1), v.repeat_interleave(each, 1)
        scale = 1 / math.sqrt(q.shape[-1])
        if self.spelling == "sdpa":
            return F.scaled_dot_product_attention(q, k, v, attn_mask=~hidden)
        if self.spelling == "sdpa float mask":
            mask = torch.zeros(T, T).masked_fill(hidden, torch.finfo(torch.float32).min)
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        if self.spelling == "@":
            logits = (q @ k.mT * scale).masked_fill(hidden, -math.inf)
        elif self.spelling == "scaled query":
            logits = torch.where(hidden, -1e9, torch.matmul(q * scale, k.transpose(-1, -2)))
        elif self.spelling == "einsum":
            logits = torch.einsum("bhsm,bhtm->bhst", q, k) / math.sqrt(q.shape[-1])
            logits = logits + torch.zeros(T, T).masked_fill(hidden, -1e4)
        elif self.spelling == "bmm":
            logits = torch.bmm(q.flatten(0, 1), k.flatten(0, 1).transpose(1, 2)) * scale
            logits = logits.masked_fill(hidden, torch.finfo(logits.dtype).min)
        elif self.spelling == "baddbmm":
            empty = torch.empty(1, 1, 1)
            logits = torch.baddbmm(empty, q.flatten(0, 1), k.flatten(0, 1).mT, beta=0, alpha=scale)
            logits = logits.view(B, self.heads, T, T).masked_fill_(hidden, -math.inf)
        elif self.spelling == "in place":
            logits = torch.matmul(k, q.mT).mT
            logits /= math.sqrt(q.shape[-1])
            logits += torch.zeros(T, T).masked_fill(hidden, -math.inf)
        elif self.spelling == "scaled by a tensor of heads":
            logits = (q @ k.mT * torch.full((self.heads, 1, 1), scale)).masked_fill(hidden, -math.inf)
        elif self.spelling == "scaled by a tensor of tokens":
            logits = (q @ k.mT / torch.full((T,), 1 / scale)).masked_fill(hidden, -math.inf)
        elif self.spelling == "groups as an axis":
            groups, keys = q.unflatten(1, (self.groups, each)), k[:, ::each, None]
            logits = (groups @ keys.mT * scale).masked_fill(hidden, -math.inf)
        elif self.spelling == "hand-written":
            logits = (q @ k.mT * scale).masked_fill(hidden, -math.inf)
            prob = torch.exp(logits - logits.amax(-1, keepdim=True))
            return (prob / prob.sum(-1, keepdim=True)) @ v
        prob = torch.softmax(logits, dim=-1)
        if self.spelling == "groups as an axis":
            return (prob @ v[:, ::each, None]).flatten(1, 2)
        self.seen = prob.view(B, self.heads, T, T)
        return F.dropout(self.seen, 0.1, self.training) @ v


def made(spelling="@"):
    torch.manual_seed(0)
    return Own(spelling).eval()


SPELLINGS = ["gqa", "sdpa", "sdpa float mask", "@", "scaled query", "einsum", "bmm", "baddbmm", "in place",
             "scaled by a tensor of heads", "scaled by a tensor of tokens", "groups as an axis"]  # fmt: skip
