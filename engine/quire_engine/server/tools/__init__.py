"""Tools, which OpenAI also calls functions: definitions in, calls out.

definitions, messages ──► checks ──► prompt ──► the model's chat template
tool_choice           ──► grammar                    (what may be generated)
text of the answer    ──► parser ──► answer          (content and calls, whole or as deltas)

How models write calls is in `formats`; nothing else depends on the model.
"""
