#!/usr/bin/env python3
# A checkpoint's encoding/encoding.py in miniature: the three constants with words of our own, among code that is passed over.
"""Not for use: TOOLS_TEMPLATE = "no constant, but text"."""
import json
from typing import Any, Dict

DSML = "｜DSML｜"
REASONING_EFFORT_TEMPLATE: str = (
    "Think this hard: {budget} "     # a part of it
    'of {{1..100}}\n\n'
)

response_format_template = r"""### Shape
{schema}""" "\n(nothing else)"

TOOLS_TEMPLATE = '''\
### Functions

Call them so, "<{dsml_token}{tc_block_name}>" first:
<{dsml_token}{tc_block_name}>
<{dsml_token}{tool_call_tag_name} name="$F">
<{dsml_token}{tool_parameter_tag_name} name="$K" string="true|false">$V</{dsml_token}{tool_parameter_tag_name}>
</{dsml_token}{tool_call_tag_name}>
</{dsml_token}{tc_block_name}>
Reason from {thinking_start_token} to {thinking_end_token}; \x41 \u00e9 \U0001f600 \101\
 ends here.
{tool_schemas}
'''


def render(tools: Dict[str, Any]) -> str:
    TOOLS_TEMPLATE = f"local, and no constant: {json.dumps(tools)}"
    return TOOLS_TEMPLATE


if __name__ == "__main__": TOOLS_TEMPLATE = "nor this"
