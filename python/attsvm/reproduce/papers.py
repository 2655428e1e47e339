"""The papers from which the figures come, as the page of the report names them.

``PAPER`` of a figure names these constants in braces.  It refers to a published figure by its content, and by the
authors' notebook if one is known.  It gives no figure numbers, since the numbers in print could not be checked.
"""

SVM = '"Transformers as Support Vector Machines" (Tarzanagh, Li, Thrampoulidis and Oymak 2023, arXiv 2308.16898)'
PROMPT = '"Max-Margin Token Selection in Attention Mechanism" (2023, arXiv 2306.13596)'
MIRROR = "Julistiono, Tarzanagh and Azizan (JMLR, arXiv 2410.14581)"
NEXT_TOKEN = '"Mechanics of Next Token Prediction with Self-Attention" (Li, Huang, Ildiz et al. 2024, arXiv 2403.08081)'
RATES = "Vasudeva, Deora and Thrampoulidis (2024, arXiv 2402.05738)"
FLOW = "Sheen, Chen, Wang and Zhou (2024, arXiv 2403.08699)"
LINEAR_MUON = '"Implicit Bias of Spectral Descent and Muon on Multiclass Separable Data" (2025)'
NOWHERE = "not published, an experiment of this package"
