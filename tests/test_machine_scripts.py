"""The scripts of docs/howto/several-machines.md: torchrun, heedful, bash and Kubernetes could read them."""

import shlex
import subprocess

import pytest
import yaml
from helpers.pages import ROOT, blocks
from torch.distributed.run import get_args_parser

from heedful.cli.shared import arguments

PAGE = ROOT / "docs" / "howto" / "several-machines.md"
OF_PAGE = [block for block in blocks() if block.page == PAGE]


def lines(block) -> list[str]:
    return block.text.replace("\\\n", " ").splitlines()


def manifests() -> dict[str, dict]:
    (block,) = [block for block in OF_PAGE if block.word == "yaml"]
    return {found["kind"]: found for found in yaml.safe_load_all(block.text)}


def container() -> dict:
    return manifests()["Job"]["spec"]["template"]["spec"]["containers"][0]


def launches() -> dict[str, list[str]]:
    """The arguments of torchrun: by hand, under Slurm, and in Kubernetes."""
    called = [
        (block.word or "hand", shlex.split(line))
        for block in OF_PAGE
        for line in lines(block)
        if "torchrun --" in line
    ]
    found = {word: words[words.index("torchrun") + 1 :] for word, words in called}
    return found | {"yaml": container()["command"][1:]}


@pytest.mark.parametrize("where", ["hand", "bash", "yaml"])
def test_torchrun_and_heedful_know_the_options(where):
    words = [word.replace("$SLURM_JOB_NUM_NODES", "2") for word in launches()[where]]
    found = get_args_parser().parse_args(words)
    assert found.module and (found.nnodes, found.nproc_per_node, found.rdzv_backend) == ("2", "8", "c10d")
    assert found.max_restarts == 3 and found.rdzv_id != "none" and found.rdzv_endpoint.endswith(":29500")
    at = words.index("heedful")
    command, *rest = words[at + 1 :]
    given = arguments.parse(command, rest)
    assert given.task == "lm" and given.run and found.training_script in ("heedful", "--")


def test_bash_reads_the_script_of_slurm(tmp_path):
    (text,) = [block.text for block in OF_PAGE if "#SBATCH" in block.text]
    script = tmp_path / "script"
    script.write_text(text)
    done = subprocess.run(["bash", "-n", str(script)], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "") and text.startswith("#!/bin/bash\n#SBATCH ")


def test_time_to_save_fits_into_the_time_that_the_scheduler_gives():
    (text,) = [block.text for block in OF_PAGE if "#SBATCH" in block.text]
    warned = int(text.partition("--signal=TERM@")[2].split()[0])
    slurm = get_args_parser().parse_args(
        [word.replace("$SLURM_JOB_NUM_NODES", "2") for word in launches()["bash"]]
    )
    kubernetes = get_args_parser().parse_args(launches()["yaml"])
    assert slurm.shutdown_timeout < warned
    grace = manifests()["Job"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert kubernetes.shutdown_timeout < grace


def test_the_pods_find_each_other():
    service, job = manifests()["Service"], manifests()["Job"]
    spec = job["spec"]
    pod, launch = spec["template"]["spec"], get_args_parser().parse_args(launches()["yaml"])
    assert spec["completionMode"] == "Indexed" and pod["subdomain"] == service["metadata"]["name"]
    assert launch.rdzv_endpoint == f"{job['metadata']['name']}-0.{pod['subdomain']}:29500"
    assert spec["completions"] == spec["parallelism"] == int(launch.nnodes)
    assert container()["resources"]["limits"]["nvidia.com/gpu"] == int(launch.nproc_per_node)
    assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
    assert service["spec"]["clusterIP"] == "None"
    mounted = {mount["name"] for mount in container()["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}
    assert all(isinstance(pair["value"], str) for pair in container()["env"])
