"""Cells of pages run in a folder whose runs/ has the small runs of tests/helpers/stored_runs."""

import logging
import os
import shutil
from pathlib import Path

from helpers import page_runs
from sphinx.application import Sphinx

START = "import os\nos.chdir({folder!r})\n"  # what every kernel runs first
QUIET = "c.IPKernelApp.log_level = 'ERROR'\n"  # a kernel warns that it speaks TCP, within this machine


def unpack(app: Sphinx) -> None:
    """Put the runs and the kernels' settings beside the site."""
    base = Path(app.outdir).resolve().parent / "site-cells"
    shutil.rmtree(base, ignore_errors=True)
    page_runs.unpack(base / "work")
    start = base / "ipython" / "profile_default" / "startup" / "00-folder.py"
    start.parent.mkdir(parents=True)
    start.write_text(START.format(folder=str(base / "work")), encoding="utf-8")
    (base / "ipython" / "profile_default" / "ipython_kernel_config.py").write_text(QUIET, encoding="utf-8")
    logging.getLogger("traitlets").setLevel(logging.WARNING)  # it reports every page on stderr
    os.environ["IPYTHONDIR"] = str(base / "ipython")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(app.srcdir.parent), os.environ.get("PYTHONPATH", "")])


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", unpack)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
