"""How each block of commands on the pages is known to work: it is run, or there is a reason.

Every block is checked besides for its programs, flags, targets, files and values
(`test_commands`), and every sample in it against its schema (`test_samples`).
"""

AS_WRITTEN = frozenset(
    {
        "README.md:2",
        "beam_search.md:1",
        "concepts/drain.md:0",
        "gateway.md:0",
        "gateway.md:1",
        "howto/mixed-gpus.md:2",
        "reference/seeds.md:1",
        "start/laptop.md:0",
        "start/laptop.md:1",
        "start/laptop.md:2",
        "start/laptop.md:3",
        "start/laptop.md:4",
        "start/laptop.md:5",
        "structured-output.md:1",
        "structured-output.md:2",
        "tools.md:1",
        "tools.md:2",
    }
)
"""Run by `test_as_written`, exactly as they are."""

_QUICK_STARTS = "tests/nodes/test_install_quick_starts.py"
ON_NODES = {
    "start/cluster.md:1": _QUICK_STARTS,
    "start/kind.md:2": _QUICK_STARTS,
    "start/kind.md:3": _QUICK_STARTS,
    "start/kind.md:4": _QUICK_STARTS,
}
"""Run by a test on real nodes."""

_THE_SAME = "the commands of start/laptop.md, which are run"
_DOCKER = "needs Docker: images are built from the same Dockerfiles by buildah, in tests/nodes"
_GPU = "needs a GPU"
_HELM = "tests/cluster/test_chart.py and tests/nodes/test_install.py install with such values"
_LOOKS = "only shows what there is; names of objects stand for the reader's own"
_NO_DOWNLOAD = (
    "nodes of tests reach no index: tests/nodes/test_install.py serves this sample and asks it,"
    " with a volume in place of downloads"
)
_OWN = "has the reader's own key, host or certificate"

REASONS = {
    "README.md:0": f"{_THE_SAME}, and the tests themselves",
    "README.md:1": _THE_SAME,
    "README.md:3": "has a path of the reader's own; the flags are checked",
    "README.md:4": _HELM,
    "beam_search.md:0": _THE_SAME,
    "concepts/batch-invariance.md:0": "downloads 16 GB; tests/gpu/test_batch_invariance.py",
    "development/cluster.md:0": "make test-nodes makes such a cluster",
    "development/cluster.md:1": "make test-nodes builds and installs the same",
    "development/cluster.md:2": "tests/nodes installs these packages where they are missing",
    "faq.md:0": _LOOKS,
    "faq.md:1": _LOOKS,
    "faq.md:2": _LOOKS,
    "howto/api-keys.md:1": _OWN,
    "howto/api-keys.md:2": _OWN,
    "howto/ingress.md:1": _OWN,
    "howto/ingress.md:3": _HELM,
    "howto/mixed-gpus.md:1": _LOOKS,
    "howto/monitoring.md:1": _HELM,
    "howto/scale-to-zero.md:1": "tests/cluster/test_scaling.py; the sample is applied by another",
    "howto/tls.md:0": _OWN,
    "howto/tls.md:3": _OWN,
    "install.md:0": _DOCKER,
    "install.md:1": f"{_DOCKER}; tests/gpu/test_starts.py starts from such kernels",
    "install.md:2": _HELM,
    "install.md:3": "the commands of start/cluster.md, which are run",
    "install.md:4": "tests/nodes/test_install_otherwise.py applies the manifest",
    "install.md:5": _HELM,
    "install.md:6": _HELM,
    "install.md:7": "tests/nodes/test_install_upgrade.py, with the images' tags besides",
    "install.md:8": "tests/nodes/test_install_upgrade.py annotates so",
    "local.md:0": "start/laptop.md has the same command, which is run, with a smaller file",
    "local.md:1": "the same",
    "moving/from-vllm.md:0": "has vLLM's own command; the flags of ours are checked",
    "operator.md:0": _DOCKER,
    "operator.md:1": "tests/cluster starts the operator in this way, on a cluster of its own",
    "operator.md:2": "tests/cluster/test_kwok.py; the sample in it is checked",
    "operator.md:3": "tests/nodes takes all of it away at its end",
    "simulate.md:0": "takes a minute and more; tests/unit/local simulates shorter ones",
    "simulate.md:3": "tests/unit/local/simulate/test_services_file.py runs another such file",
    "simulate.md:4": "has a trace of the reader's own",
    "start/cluster.md:0": _DOCKER,
    "start/cluster.md:2": _NO_DOWNLOAD,
    "start/cluster.md:3": _NO_DOWNLOAD,
    "start/cluster.md:4": _LOOKS,
    "start/gpu.md:0": f"{_GPU}; tests/gpu/test_starts.py starts so",
    "start/gpu.md:1": _THE_SAME,
    "start/gpu.md:2": f"{_GPU}; tests/gpu/test_starts.py starts from such kernels",
    "start/gpu.md:3": f"{_GPU}; tests/gpu/test_profile.py",
    "start/gpu.md:4": _GPU,
    "start/kind.md:0": "needs Docker and kind; tests/unit/cluster checks what kind is given",
    "start/kind.md:1": _DOCKER,
    "structured-output.md:0": _THE_SAME,
    "tools.md:0": "downloads 16 GB",
    "watching.md:0": "goes on for ever, with the reader's own addresses; tests/api/test_top.py",
    "watching.md:2": "tests/cluster/test_doctor.py",
}
"""Why a block is run by no test as it stands, and what shows the same."""
