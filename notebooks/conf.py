"""The documentation site: ``python -m sphinx -W -b html notebooks site``.

The notebooks are shown with the outputs that are stored in them; nothing is executed but the quick versions of the
figures, for the gallery.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import attsvm
import site_parts

project = "attsvm"
author = "the attsvm developers"
version = release = attsvm.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "numpydoc", "sphinx_design"]
exclude_patterns = ["_*", "**/.ipynb_checkpoints"]

nb_execution_mode = "off"
nb_merge_streams = True  # what a cell prints is one box
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3

autosummary_generate = True
autodoc_typehints = "none"  # numpydoc's parameter lists say it better
numpydoc_show_class_members = False  # the class template lists them
numpydoc_xref_param_type = False

smartquotes = False  # "frobenius" is code

html_theme = "pydata_sphinx_theme"
html_title = "attsvm"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_math_renderer = "mathml"  # what browsers draw themselves: no script, no network
html_theme_options = {
    "show_prev_next": True,
    "secondary_sidebar_items": {"**": ["page-toc"], "index": []},
    "navbar_align": "left",
    "header_links_before_dropdown": 5,
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_sidebars = {"index": [], "gallery": []}
copyright = f"2026, the attsvm developers. Version {release}, BSD-3-Clause"


shown = site_parts.write_reference()


def setup(app):
    site_parts.setup(app, shown)
