"""Names and papers in prose become links: to pages of this library, and by links.toml to other libraries and papers.

Links to the scripts of examples, which work where the sources are read, become links to the pages made of them.
"""

from docutils import nodes
from mentions import LINKS, NAME, elsewhere, of_pages, own, papers_in
from sphinx.util.nodes import make_refnode


def link_examples(app, page, source):
    """Links to scripts of examples become links to the pages that are made of them."""
    source[0] = of_pages(source[0])


def section_of(node):
    while node.parent is not None and not isinstance(node, nodes.section):
        node = node.parent
    return id(node)


def link_names(app, doctree, page):
    """Code in prose that is a public name becomes a link, where a section mentions it first."""
    objects, linked = app.env.domains["py"].objects, set()
    for node in list(doctree.findall(nodes.literal)):
        found = NAME.fullmatch(node.astext().strip())
        if (
            found is None
            or isinstance(node.parent, nodes.reference)
            or (section_of(node), found[1]) in linked
        ):
            continue
        known = next((objects[name] for name in own(found[1]) if name in objects), None)
        outside = LINKS["names"].get(elsewhere(found[1]))
        if known is not None and known.docname != page:
            link = make_refnode(
                app.builder,
                page,
                known.docname,
                known.node_id,
                [node.deepcopy()],
                found[1],
            )
        elif known is None and outside is not None:
            link = nodes.reference(
                "", "", node.deepcopy(), refuri=outside, internal=False
            )
        else:
            continue
        linked.add((section_of(node), found[1]))
        node.replace_self(link)


def link_papers(doctree):
    """Citations such as "Kimeldorf and Wahba 1971" become links."""
    for node in list(doctree.findall(nodes.Text)):
        if isinstance(
            node.parent,
            nodes.FixedTextElement
            | nodes.literal
            | nodes.reference
            | nodes.title
            | nodes.math,
        ):
            continue
        text, parts, end = node.astext(), [], 0
        for start, after, address in papers_in(text):
            parts += [
                nodes.Text(text[end:start]),
                nodes.reference("", text[start:after], refuri=address, internal=False),
            ]
            end = after
        if parts:
            node.parent.replace(node, [*parts, nodes.Text(text[end:])])


def resolved(app, doctree, page):
    link_names(app, doctree, page)
    link_papers(doctree)


def setup(app):
    app.connect("source-read", link_examples)
    app.connect("doctree-resolved", resolved)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
