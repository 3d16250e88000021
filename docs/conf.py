"""Sphinx builds the pages: `make docs`, with warnings as errors."""

import html
import os
import re
import sys
import textwrap
import warnings
from datetime import date
from pathlib import Path

import joblib
from docutils import nodes
from sphinx_gallery.sorting import ExplicitOrder

import kernelopt

sys.path.insert(0, str(Path(__file__).parent))

project = "kernelopt"
author = "The kernelopt authors"
copyright = f"{date.today().year}, {author}"  # noqa: A001
release = kernelopt.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx-mathjax-offline",  # formulas without another server
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
    "linking",
]
exclude_patterns = [
    "_build",
    "paper.md",
]  # the paper is for a journal, which reads its citations
templates_path = ["_templates"]
default_role = "code"

myst_enable_extensions = ["dollarmath", "attrs_inline"]
myst_heading_anchors = 3
mathjax3_config = {
    "tex": {"inlineMath": [["\\(", "\\)"]], "displayMath": [["\\[", "\\]"]]}
}

autosummary_generate = True
autodoc_typehints = "none"  # the sections of a docstring say what is meant
toc_object_entries_show_parents = "hide"
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False
napoleon_google_docstring = False
napoleon_use_param = False  # `offset, scale : float` stays one entry
napoleon_use_rtype = False
napoleon_attr_annotations = False
napoleon_custom_sections = [("Attributes", "params_style")]

html_theme = "pydata_sphinx_theme"
html_title = "kernelopt"
html_static_path = ["_static"]
html_css_files = ["kernelopt.css"]
html_favicon = "_static/favicon.svg"
html_logo = "_static/logo.svg"  # its colours are read on light and dark pages
html_theme_options = {
    "logo": {"text": "kernelopt", "alt_text": "Home"},
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "header_links_before_dropdown": 5,
    "show_toc_level": 2,
    "secondary_sidebar_items": {
        "**": ["page-toc", "sg_download_links"],
        "kernels": [],  # wide tables
        "benchmarks": [],
        "benchmarks_details": [],
    },
    "pygments_dark_style": "a11y-dark",
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_sidebars = {"**": ["sidebar-nav-bs"]}
html_show_sourcelink = False
html_use_index = html_domain_indices = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True


os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
warnings.filterwarnings("ignore", "FigureCanvasAgg is non-interactive", UserWarning)

# The sections of the gallery and their examples, in order; a build stops at an example that is missing here.
SECTIONS = {
    "tutorials": [
        "first_fit",
        "classification",
        "choosing",
        "from_theta_to_w",
        "estimators",
    ],
    "regression": [
        "regularized_least_squares",
        "robust_losses",
        "unpenalized_coefficient",
        "prior_function",
        "poisson_exposure",
        "invented_loss",
        "conditional_value_at_risk",
        "multi_task",
    ],
    "classification": [
        "maximum_margin",
        "support_vector_machines",
        "logistic",
        "crammer_singer",
        "ranking",
        "sigmoid_least_squares",
        "nearest_neighbours",
        "perceptron",
    ],
    "constraints": ["fairness", "fairness_multiplier", "worst_case_least_squares"],
    "choosing": [
        "kernel_width",
        "kernel_choice",
        "multiple_kernels",
        "relevant_columns",
        "noisy_labels",
        "learned_exposure",
        "network_features",
    ],
    "kernels": [
        "finite_feature_maps",
        "degree_two_expansion",
        "lifting",
        "indefinite_kernel",
    ],
    "unsupervised": ["kernel_pca", "kernel_svd", "one_class"],
    "certificates": ["optimality_bounds", "audit_svc"],
    "applications": [
        "engel_curves",
        "demand",
        "newsvendor",
        "yield_curve",
        "survival",
        "balancing",
        "differential_equation",
    ],
}
EXAMPLES = ["quickstart", *(name for names in SECTIONS.values() for name in names)]
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",
    "ignore_pattern": "large_scale",  # takes minutes
    "subsection_order": ExplicitOrder([f"../examples/{name}" for name in SECTIONS]),
    "within_subsection_order": ExplicitOrder([f"{name}.py" for name in EXAMPLES]),
    "image_scrapers": ("matplotlib",),
    "image_srcset": ["2x"],
    "thumbnail_size": (640, 400),  # the shape of the figures, without a margin
    "remove_config_comments": True,
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": 1,
    "write_computation_times": False,
    "download_all_examples": False,
    "abort_on_example_error": True,
    "plot_gallery": "True",
    "doc_module": ("kernelopt",),
    "backreferences_dir": "backreferences",
    "inspect_global_variables": False,
    "capture_repr": (),
    "parallel": joblib.cpu_count(),
}


def escaped(line):
    """What means something to reStructuredText, outside of code: |x| is an absolute value here, and f* an optimum."""
    parts = re.split("(`+[^`]*`+)", line)
    parts[::2] = [
        re.sub(r"([|*]|(?<=\w)_(?!\w))", r"\\\1", part) for part in parts[::2]
    ]
    return "".join(parts)


def with_descriptions(lines):
    """`name : what it is` has no type: the colon starts the description, which goes on if the line was full."""
    found, section = [], ""
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        section = line if set(after) == {"-"} else section
        entry = (
            re.fullmatch(r"(\S[^:]*) : (.*)", line)
            if section in ("Parameters", "Attributes")
            else None
        )
        typed = after.startswith(" ") and (
            after.lstrip()[0].isupper() or len(line) < 95
        )
        found += [entry[1], "    " + entry[2]] if entry and not typed else [line]
    return found


def readable(app, what, name, *described):
    """Docstrings are written to be read as they are; here they become reStructuredText."""
    found, code = [], False
    for line in with_descriptions(described[-1]):
        code = bool(line.strip()) and (code or line.lstrip().startswith(">>>"))
        found.append(line if code else escaped(line))
    described[-1][:] = found


DESCRIPTION = 160  # characters of a page that search engines show


def described(app, page, template, context, doctree):
    """A description for search engines, from the first sentences, where a page does not state one."""
    if doctree is None or 'name="description"' in context["metatags"]:
        return
    sentences = (
        node.astext()
        for node in doctree.findall(nodes.paragraph)
        if not list(node.findall(nodes.math))
    )
    title = re.sub("<.*?>", "", context["title"])
    text = " ".join(f"{title}: {' '.join(sentences)}".split())
    short = textwrap.shorten(text, DESCRIPTION, placeholder="…")
    context["metatags"] += (
        f'<meta name="description" content="{html.escape(short)}" />\n'
    )


def setup(app):
    app.connect("autodoc-process-docstring", readable, priority=400)  # before napoleon
    app.connect("html-page-context", described)
