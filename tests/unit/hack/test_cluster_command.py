"""`python -m hack.cluster` where only what serving needs is installed."""

import subprocess
import sys

from hack.chart.values import CHART

_WITHOUT = (
    "import runpy, sys; sys.modules['cryptography'] = None; sys.argv = ['x', 'status'];"
    " runpy.run_module('hack.cluster', run_name='__main__')"
)


def test_what_is_not_installed_is_said_with_what_installs_it() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _WITHOUT], capture_output=True, text=True, cwd=CHART.parents[1]
    )
    assert ran.returncode == 1
    assert ran.stderr.startswith("cluster: error: cryptography is not installed")
    assert "make install" in ran.stderr
    assert "Traceback" not in ran.stderr
