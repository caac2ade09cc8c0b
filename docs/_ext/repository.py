"""Links to files of the repository that the site shows as pages of its own, such as CONTRIBUTING.md."""

from pathlib import Path

from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

PAGES = {  # a file outside docs/, and the page that includes it
    "README.md": "index",
    "CHANGELOG.md": "changelog",
    "CONTRIBUTING.md": "contribute",
    "benchmarks/RESULTS.md": "results",
}


class LinksToRepository(SphinxPostTransform):
    """Point them at the pages, before MyST looks for the files."""

    default_priority = 5

    def run(self, **kwargs: object) -> None:
        docs = Path(self.app.srcdir)
        here = (docs / self.env.docname).parent
        for link in self.document.findall(pending_xref):
            if link.get("reftype") != "myst":
                continue
            target = link["reftarget"]
            for file, page in PAGES.items():
                if target == file or (here / f"{target}.md").resolve() == docs.parent / file:
                    link["refdomain"], link["reftarget"] = "doc", page
                    link.attributes.setdefault("reftargetid", None)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_post_transform(LinksToRepository)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
