"""Whether a chat template knows of tools, which its variables show."""

import jinja2
from jinja2 import nodes


def reads_tools(source: str) -> bool:
    """Whether the template writes the definitions that it is given.

    Parameters
    ----------
    source
        A template that is known to be valid.
    """
    # never rendered: this only looks at the names in it
    parsed = jinja2.Environment(  # noqa: S701
        extensions=["jinja2.ext.loopcontrols"]
    ).parse(source)
    return any(name.name == "tools" and name.ctx == "load" for name in parsed.find_all(nodes.Name))
