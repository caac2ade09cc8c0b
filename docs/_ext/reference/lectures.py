"""The lectures' table of GPT, with what heedful counts and predicts."""

from heedful.cli.plan import PlanOptions
from heedful.cli.shared.plan_sizes import generation_report, generation_row
from heedful.planner.machines import find_cluster, find_gpu
from heedful.planner.published import Generation, generations

from .markdown import prose, table

TITLES = ("model", "year", "printed", "counted", "tokens", "days", "cost", "data; published cost", "known")
NO_BREAK = "\N{NO-BREAK SPACE}"
PLAN = PlanOptions("gpt3", gpus=1024, gpu="a100")


def gpt_table() -> str:
    """A row for each model, as `heedful plan gpt3 --gpus 1024 --gpu a100` prints it, and what is known."""
    cluster = find_cluster(find_gpu(PLAN.gpu), PLAN.gpus)
    rows = []
    for one in generations():
        cells = generation_row(one, generation_report(one, PLAN, cluster, []))
        *figures, data = map(prose, cells)
        rows.append([*(figure.replace(" ", NO_BREAK) for figure in figures), data, what_is_known(one)])
    return table(TITLES, rows)


def what_is_known(one: Generation) -> str:
    """Which figures of a row somebody published."""
    if one.training is None:
        return "nothing published" if one.said is None else "size: the slide's"
    return "cost: the slide's" if "slide" in one.cost else "published"
