"""RL: rounds of a model's own responses, their rewards, and the losses of GRPO and PPO, by loops in fp64."""

import itertools
import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from helpers import killed_rl
from helpers.runs import CPU, Interrupted, Quiet, recipe_for, started_from, state_of, texts  # noqa: F401 (a fixture)

import heedful
from heedful.corpora import instructions
from heedful.corpora.instructions.judge import judge
from heedful.data.conversations import read_prompts
from heedful.data.report import Report
from heedful.errors import BadInput
from heedful.models import gpt2
from heedful.models.base.shells import WithValue
from heedful.parts.lora import Lora, adapt, without_adapters
from heedful.runs import setup, trainer
from heedful.tasks import rewards, rollouts
from heedful.tasks.instruct_data import ResponseRow
from heedful.tasks.policy_gradients import GRPO, PPO
from heedful.tasks.recipe import make, to_json
from heedful.train.loss import NOTHING

ROOT = Path(heedful.__file__).parents[1]
V, EOS, TAU, BETA, CLIP = 11, 3, 0.8, 0.3, 0.2
PROMPTS = [[4, 5, 6], [7, 4], [8, 9, 10, 5]]
LONGEST, RESPONSES = 5, 4
GAMMA, LAM, WEIGHT = 0.9, 0.8, 0.5


def tiny_policy(seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    config = gpt2.GPT2Config(vocab=V, context=13, width=12, heads=3, layers=2, ffn_width=20, dropout=0.0)
    return gpt2.build(config).double().eval()


@pytest.fixture
def policy():
    return tiny_policy(0)


@pytest.fixture
def reference():
    return tiny_policy(1)


def program(prompts, responses, ended):
    """More of the token 5 is better; an unfinished response is worth nothing."""
    return [
        float(said.split().count("5")) if whole else 0.0 for said, whole in zip(responses, ended, strict=True)
    ]


def rollouts_with(algorithm, reference, passes=1, parts=2, seed=0):
    plan = rollouts.RoundPlan(len(PROMPTS), 2, RESPONSES, 9, passes, parts, seed)
    writer = rollouts.ResponseWriter(EOS, 0, LONGEST, 64, TAU)
    lend = rollouts.lent(lambda device: reference)

    def decode(ids):
        return " ".join(map(str, ids))

    return rollouts.Rollouts(PROMPTS, plan, writer, decode, program, algorithm, lend)


@pytest.fixture
def drawn(policy, reference):
    """A round of the first policy; afterwards the policy has moved, so that ratios are not 1."""

    def draw(algorithm, model):
        made = rollouts_with(algorithm, reference)
        batch = made.plan.batches(0, 1)[0]
        made(model, batch)
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(torch.randn(weight.shape, dtype=torch.float64), alpha=0.1)
        return made

    return draw


def log_probability(model, tokens, place, token):
    """log pi(token | tokens up to a place) at the temperature, by a loop."""
    scores = (model(torch.tensor([tokens]))[0, place] / TAU).tolist()
    return scores[token] - math.log(sum(math.exp(s) for s in scores))


def rows_of(made):
    """(tokens, [(place, answer)]) of every response of a round."""
    for tokens, length, answers in zip(
        made.round.tokens_RT.tolist(),
        made.round.lengths_R.tolist(),
        made.round.answers_RT.tolist(),
        strict=True,
    ):
        yield tokens[:length], [(t, a) for t, a in enumerate(answers) if a != NOTHING]


# Losses


def test_the_loss_of_grpo_is_the_formula_of_the_paper(policy, reference, drawn):
    old = tiny_policy(0)
    made = drawn(GRPO(RESPONSES, CLIP, BETA, TAU), policy)
    expected = []
    found_rewards = made.round.rewards_R.tolist()
    for number, (tokens, answers) in enumerate(rows_of(made)):
        group = found_rewards[number // RESPONSES * RESPONSES :][:RESPONSES]
        mean = sum(group) / RESPONSES
        deviation = math.sqrt(sum((r - mean) ** 2 for r in group) / (RESPONSES - 1))
        advantage, total = (found_rewards[number] - mean) / (deviation + 1e-4), 0.0
        for place, answer in answers:
            mine, then, ref = (log_probability(m, tokens, place, answer) for m in (policy, old, reference))
            ratio = math.exp(mine - then)
            gain = min(ratio * advantage, min(max(ratio, 1 - CLIP), 1 + CLIP) * advantage)
            total += gain - BETA * (math.exp(ref - mine) - (ref - mine) - 1)
        expected.append(-total / len(answers))
    assert len(set(found_rewards)) > 1, "a round in which every reward is the same shows nothing"
    found = GRPO(RESPONSES, CLIP, BETA, TAU).losses(policy, made.round)
    assert found.tolist() == pytest.approx(expected, rel=1e-5, abs=1e-6)  # rewards are kept in fp32


def test_the_loss_of_ppo_with_values_is_the_formula_of_the_papers(policy, reference, drawn):
    old, model = tiny_policy(0), WithValue(policy, 12).double()
    torch.nn.init.normal_(model.value.weight)
    first = [w.detach().clone() for w in (model.value.weight, model.value.bias)]
    algorithm = PPO(CLIP, BETA, TAU, GAMMA, LAM, WEIGHT, 3)
    made = drawn(algorithm, model)

    def value(weights, decoder, tokens, place):
        vector = decoder.hidden(torch.tensor([tokens]))[0, place]
        return float((vector @ weights[0][0] + weights[1][0]).detach())

    advantages, returns, befores = [], [], []
    for number, (tokens, answers) in enumerate(rows_of(made)):
        values = [value(first, old, tokens, place) for place, _ in answers]
        costs = [
            -BETA * (log_probability(old, tokens, p, a) - log_probability(reference, tokens, p, a))
            for p, a in answers
        ]
        costs[-1] += float(made.round.rewards_R[number])
        running, mine = 0.0, []
        for t in reversed(range(len(answers))):
            after = values[t + 1] if t + 1 < len(answers) else 0.0
            running = costs[t] + GAMMA * after - values[t] + GAMMA * LAM * running
            mine.insert(0, running)
        advantages.append(mine)
        befores.append(values)
        returns.append([a + v for a, v in zip(mine, values, strict=True)])
    flat = list(itertools.chain(*advantages))
    mean = sum(flat) / len(flat)
    deviation = math.sqrt(sum((a - mean) ** 2 for a in flat) / (len(flat) - 1))
    now, expected = (model.value.weight, model.value.bias), []
    for number, (tokens, answers) in enumerate(rows_of(made)):
        total = 0.0
        for t, (place, answer) in enumerate(answers):
            advantage = (advantages[number][t] - mean) / (deviation + 1e-8)
            mine, then = (log_probability(m, tokens, place, answer) for m in (policy, old))
            ratio = math.exp(mine - then)
            gain = min(ratio * advantage, min(max(ratio, 1 - CLIP), 1 + CLIP) * advantage)
            v, before, target = value(now, policy, tokens, place), befores[number][t], returns[number][t]
            clipped = before + min(max(v - before, -CLIP), CLIP)
            total += -gain + WEIGHT * max((v - target) ** 2, (clipped - target) ** 2) / 2
        expected.append(total / (len(flat) / len(advantages)))
    assert algorithm.losses(model, made.round).tolist() == pytest.approx(expected, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("kind", ["grpo", "ppo"])
def test_in_the_first_update_of_a_round_nothing_is_clipped(policy, reference, kind):
    """The policy is the one that wrote: ratios are 1, and losses are minus the advantages."""
    model = policy if kind == "grpo" else WithValue(policy, 12).double()
    algorithm = GRPO(RESPONSES, 1e-9, 0.0, TAU) if kind == "grpo" else PPO(1e-9, 0.0, TAU, 1.0, 1.0, 0.0, 64)
    made = rollouts_with(algorithm, reference)
    loss = made(model, made.plan.batches(0, 1)[0])
    rows = list(made.plan.batches(0, 1)[0].rows)
    part = made.round.rows(torch.tensor(rows))
    losses = algorithm.losses(model, part)
    if kind == "grpo":
        assert losses.tolist() == pytest.approx((-part.advantages[:, 0]).tolist(), abs=1e-6)
    else:
        length = float(part.told_F[2])
        assert losses.tolist() == pytest.approx((-part.advantages.sum(-1) / length).tolist(), abs=1e-6)
    assert float(loss.total.detach()) == pytest.approx(
        float(losses.detach().sum()), abs=1e-6
    ) and loss.count == len(rows)


def test_prompts_are_not_learned(policy, reference):
    """Only places that have an answer are scored: what is said of others has no gradient."""
    made = rollouts_with(GRPO(RESPONSES, CLIP, BETA, TAU), reference)
    made(policy, made.plan.batches(0, 1)[0])
    seen = []
    policy.head.register_forward_hook(lambda module, inputs, output: seen.append(output))
    logprobs = rollouts.response_logprobs(policy, made.round, TAU)
    assert seen[0].shape == (int(made.round.real_RT.sum()), V)
    assert logprobs[~made.round.real_RT].abs().max() == 0


# Rounds


def test_a_round_follows_from_weights_and_seed_alone(policy, reference):
    """Not from what torch has drawn before, nor from the order in which updates are asked for."""
    algorithm = GRPO(RESPONSES, CLIP, BETA, TAU)
    first, second, other = (rollouts_with(algorithm, reference, seed=seed) for seed in (0, 0, 1))
    first(policy, first.plan.batches(0, 1)[0])
    torch.rand(5)
    second(policy, second.plan.batches(1, 1)[0])  # the second update of the same round
    other(policy, other.plan.batches(0, 1)[0])
    for name, tensor in first.round.tensors().items():
        assert torch.equal(tensor, second.round.tensors()[name]), name
    assert first.round.tokens_RT.shape != other.round.tokens_RT.shape or not torch.equal(
        first.round.tokens_RT, other.round.tokens_RT
    )


def test_a_response_does_not_depend_on_those_written_beside_it(policy):
    writer = rollouts.ResponseWriter(EOS, 0, LONGEST, 64, TAU)
    together = writer.write(policy, PROMPTS, [5, 6, 7])
    alone = [
        writer.write(policy, [prompt], [seed])[0] for prompt, seed in zip(PROMPTS, (5, 6, 7), strict=True)
    ]
    assert [one.tokens for one in together] == [one.tokens for one in alone]


@pytest.mark.parametrize(("passes", "parts", "micros"), [(1, 2, 1), (3, 2, 1), (2, 3, 2)])
def test_every_pass_has_each_response_once(passes, parts, micros):
    plan = rollouts.RoundPlan(7, 3, 5, 9, passes, parts, 4)
    for round_ in range(4):
        for pass_ in range(passes):
            steps = [round_ * plan.updates + pass_ * parts + part for part in range(parts)]
            batches = [batch for step in steps for batch in plan.batches(step, micros)]
            assert sorted(row for batch in batches for row in batch.rows) == list(range(15))
            assert {batch.round for batch in batches} == {round_}
            assert all(batch.ids[0] == batch.prompts[batch.rows[0] // 5] for batch in batches)
    asked = [number for round_ in range(2) for number in plan.batches(round_ * plan.updates, 1)[0].prompts]
    assert len(set(asked)) == 6, "a prompt comes again only when an epoch is over"


def test_the_divergence_is_that_of_whole_distributions(policy, reference):
    made = rollouts_with(GRPO(RESPONSES, CLIP, BETA, TAU), reference)
    made(policy, made.plan.batches(0, 1)[0])
    lend = rollouts.lent(lambda device: reference)
    found = list(rollouts.exact_kl(policy, lend, made.round, 3, TAU))
    for number, (tokens, answers) in enumerate(rows_of(made)):
        total = 0.0
        for place, _ in answers:
            mine, ref = (
                (m(torch.tensor([tokens]))[0, place] / TAU).log_softmax(-1).tolist()
                for m in (policy, reference)
            )
            total += sum(math.exp(p) * (p - q) for p, q in zip(mine, ref, strict=True))
        assert found[number] == pytest.approx(total, abs=1e-5)
    assert list(rollouts.exact_kl(reference, lend, made.round, 64)) == [0.0] * len(found)


def test_the_reference_of_adapters_is_the_model_without_them(policy):
    plain = tiny_policy(0)
    adapt(policy.double(), Lora(2, 4.0))
    for name, weight in policy.named_parameters():
        if name.endswith(".B"):
            torch.nn.init.normal_(weight)
    tokens = torch.tensor([PROMPTS[2]])
    assert not torch.equal(policy(tokens), plain(tokens))
    with rollouts.unadapted(policy) as reference:
        assert torch.equal(reference(tokens), plain(tokens))
    adapted = policy(tokens)
    with without_adapters(policy):
        pass
    assert torch.equal(policy(tokens), adapted)


# Rewards


def test_programs_judge_responses_and_an_unfinished_one_gets_nothing():
    rows = [
        ResponseRow((("user", row.prompt),), row.response, row)
        for row in itertools.islice(instructions.split("valid"), 5)
    ]
    for name, check in rewards.PROGRAMS.items():
        made = rewards.ProgramRewards(rows, check)
        right = made([0, 3, 3], [rows[0].response, rows[3].response, rows[3].response], [True, True, False])
        assert right == [1.0, 1.0, 0.0], name
    judged = rewards.ProgramRewards(rows, judge)([1], [rows[1].instruction.rejected], [True])
    assert judged == [judge(rows[1].instruction, rows[1].instruction.rejected)] and judged[0] < 1


def test_own_rows_are_judged_by_their_own_responses():
    row = ResponseRow((("user", "say it"),), "one two")
    made = {name: rewards.ProgramRewards([row], rewards.PROGRAMS[name]) for name in ("exact", "length")}
    assert made["exact"]([0, 0], ["one  two", "one"], [True, True]) == [1.0, 0.0]
    assert made["length"]([0, 0], ["a b", "a"], [True, True]) == [1.0, 0.5]


class Scores:
    def scores(self, rows):
        return [float(len(said)) for _, said in rows]


def test_a_reward_model_gives_an_unfinished_response_the_worst_score(monkeypatch):
    monkeypatch.setattr(rewards, "reward_model", lambda folder: Scores())
    made = rewards.ModelRewards([ResponseRow((("user", "x"),), "")], "somewhere")
    assert made([0, 0, 0], ["aaa", "aa", "aaaaa"], [True, True, False]) == [3.0, 2.0, 2.0]


def test_prompts_may_come_without_responses(tmp_path):
    lines = [
        {"prompt": "a"},
        {"prompt": "b", "response": "c"},
        {"messages": [{"role": "user", "content": "d"}]},
        {"messages": [{"role": "user", "content": "e"}, {"role": "assistant", "content": "f"}]},
        {"messages": [{"role": "assistant", "content": "g"}]},
        {"prompt": 7},
        {},
    ]
    path = tmp_path / "p.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    report = Report()
    found = list(read_prompts(path, report=report))
    assert found == [
        ((("user", "a"),), ""),
        ((("user", "b"),), "c"),
        ((("user", "d"),), ""),
        ((("user", "e"),), "f"),
    ]
    assert report.counts.total() == 3


# Runs


@pytest.fixture
def started(texts, tmp_path):
    """The settings of a run of rl that starts from an instruct run of a few steps."""
    trainer.start(recipe_for("instruct", texts, 4), tmp_path / "sft", Quiet(), CPU)

    def settings(**more):
        files = {
            "data.table": texts["a.said"],
            "data.valid_table": texts["v.said"],
            "data.max_response_length": 4,
            "data.max_length": 32,
            "train.reward": "length",
            "train.prompts": 3,
            "train.responses": 4,
            "train.passes": 2,
            "train.steps": 7,
            "train.learning_rate": 1e-2,
            "evaluate.every": 3,
            "evaluate.rows": 5,
            "checkpoint.every": 100,
        }
        return make("rl", settings=started_from(tmp_path / "sft", files | more))

    return settings


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"train.algorithm": "ppo", "train.accumulation_steps": 2},
        {"train.tune": "lora", "train.temperature": 0.7},
        {"train.ema_decay": 0.9, "train.optimizer": "muon"},
    ],
    ids=["grpo", "ppo", "lora", "averaged"],
)
@pytest.mark.parametrize("step", [2, 5])
def test_a_run_that_stops_within_a_round_goes_on_to_the_same_bytes(started, tmp_path, more, step):
    more = more | {"checkpoint.every": step, "checkpoint.keep": 9}
    trainer.start(started(**more), tmp_path / "whole", Quiet(), CPU)
    with pytest.raises(Interrupted):
        trainer.start(started(**more), tmp_path / "cut", Quiet(until=step + 1), CPU)
    assert (tmp_path / "cut" / "checkpoints" / f"step-{step}").is_dir()
    assert trainer.resume(tmp_path / "cut", Quiet(), CPU).finished
    assert state_of(tmp_path / "cut") == state_of(tmp_path / "whole")


def run_apart(asked, folder, place, number):
    """The run in a process of its own; its exit code."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    line = [sys.executable, "-W", "ignore", killed_rl.__file__, asked, folder, place, str(number)]
    env = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    return subprocess.run(list(map(str, line)), env=env, check=False).returncode


@pytest.mark.parametrize(("place", "numbers"), [("rollout", (3, 21)), ("update", (4, 3)), ("save", (9, 12))])
def test_a_run_that_is_killed_goes_on_to_the_same_bytes(started, tmp_path, place, numbers):
    """By SIGKILL, twice: in the middle of a rollout, between two updates of a round, or in a save."""
    asked = tmp_path / "asked.json"
    asked.write_text(json.dumps(to_json(started(**{"checkpoint.every": 1, "checkpoint.keep": 9}))))
    trainer.start(started(**{"checkpoint.every": 1, "checkpoint.keep": 9}), tmp_path / "whole", Quiet(), CPU)
    for number in numbers:
        assert run_apart(asked, tmp_path / "cut", place, number) == -signal.SIGKILL
    assert run_apart(asked, tmp_path / "cut", "nowhere", 0) == 0
    assert state_of(tmp_path / "cut") == state_of(tmp_path / "whole")


@pytest.mark.parametrize("algorithm", ["grpo", "ppo"])
def test_rewards_rise(started, tmp_path, algorithm):
    """Responses of the right length, from a model that has barely learned to end them."""
    more = {"train.algorithm": algorithm, "train.beta": 0.0, "train.prompts": 8, "train.responses": 8}
    outcome = trainer.start(started(**more, **{"train.steps": 24}), tmp_path / "run", Quiet(), CPU)
    found = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    rounds = [line["reward"] for line in found if "reward" in line][::4]
    assert sum(rounds[-2:]) / 2 > 2 * rounds[0]
    assert outcome.best.scores["kl"] > 0
    assert {"reward", "kl", "length", "unfinished"} <= set(found[0])


def test_what_is_left_of_ppo_is_a_decoder_that_answers(started, tmp_path):
    outcome = trainer.start(started(**{"train.algorithm": "ppo"}), tmp_path / "run", Quiet(), CPU)
    assert not isinstance(outcome.model, WithValue)
    model = heedful.load(tmp_path / "run")
    for name, weight in outcome.model.state_dict().items():
        assert torch.equal(weight, model.model.state_dict()[name]), name


def test_a_run_starts_as_the_model_it_comes_from(started, tmp_path):
    """With a learning rate of next to nothing, the divergence stays 0 and the weights are the same."""
    settings = started(**{"train.learning_rate": 1e-12, "train.steps": 1})
    outcome = trainer.start(settings, tmp_path / "run", Quiet(), CPU)
    assert outcome.best.scores["kl"] == pytest.approx(0.0, abs=1e-6)
    before = heedful.load(tmp_path / "sft").model.state_dict()
    for name, weight in outcome.model.state_dict().items():
        assert torch.allclose(weight, before[name], atol=1e-9), name


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"train.reward": "judge"}, "knows the instructions of --corpus instructions only"),
        ({"train.reward": "nonsense"}, "neither a reward nor a folder"),
        ({"train.updates": 100}, "more than the 12 responses of a round"),
        ({"data.max_length": 5, "data.max_response_length": 5}, "every prompt is over"),
    ],
)
def test_what_cannot_be_is_refused(started, tmp_path, more, said):
    with pytest.raises(BadInput, match=said):
        trainer.start(started(**more), tmp_path / "run", Quiet(), CPU)
    assert not (tmp_path / "run").exists()


def test_settings_of_ppo_are_refused_without_it(started):
    with pytest.raises(BadInput, match="train.discount is for train.algorithm=ppo"):
        started(**{"train.discount": 0.9})


def test_rl_needs_a_model_to_start_from(tmp_path):
    asked = make("rl", settings={"data.corpus": "instructions"})
    with pytest.raises(BadInput, match="give --from RUN"):
        trainer.start(asked, tmp_path / "run", Quiet(), CPU)


def test_evaluation_tells_rewards_and_divergence(started, tmp_path, capsys):
    from heedful.cli.main import main

    trainer.start(started(), tmp_path / "run", Quiet(), CPU)
    assert main(["evaluate", str(tmp_path / "run"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["metrics"]
    assert {"exact", "score", "kl", "loss"} <= set(found)
    assert found["loss"] == pytest.approx(0.02 * found["kl"] - found["score"])


def test_a_job_is_the_same_whenever_it_is_made(started, tmp_path):
    """Plans follow from the recipe: two processes, or two parts of a run, see the same rounds."""
    trainer.start(started(), tmp_path / "run", Quiet(), CPU)
    recipe = trainer.recipe_in(json.loads((tmp_path / "run" / "recipe.json").read_text()))
    jobs = [setup.make_job(recipe, tmp_path / "run", Quiet()) for _ in range(2)]
    assert jobs[0].batches(5) == jobs[1].batches(5) and jobs[0].facts == jobs[1].facts
    with pytest.raises(BadInput, match="in one process"):
        jobs[0].batches(0, 0, 2)
