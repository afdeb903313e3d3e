"""Where a request goes, and who waits: pure code. Time and chance come in as arguments.

text_chunks    names of a prompt's parts, which engines report as cached or gone
prefix_index   which engine has which parts
demand         what a request is expected to take
endpoint       one engine: what it said last, and what we sent it since
figures        seconds and room that follow from both
shares         parts of the traffic that were planned for accelerators
choose         the endpoint where a request finishes soonest
queue          those that wait: by priority, fair between keys
rate_limit     requests and tokens a minute
retry          when to try again
"""
