"""How a kernel that is launched early waits for the one before it.

Every kernel of such a chain waits before it reads what another wrote and before it writes at all:
then whatever came before its predecessor is done as well.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc"
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def wait_for_inputs(DEPENDENT: tl.constexpr):
    """Wait until the kernel before is done, then let the next one be launched."""
    if DEPENDENT:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
