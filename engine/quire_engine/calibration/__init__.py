"""Measures how long an engine's steps take, before it serves: seconds at its start.

    trials      which steps to measure: decodes over batch and context, prompts, both together
    rig         runs such steps on an executor, on blocks of its own, and gives all back
    measuring   as many trials as the time allows, several rounds, robust against hiccups
    stored      results of an earlier start, if the machine and the settings are the same
    start       what an engine does before it is ready: measure, take a stored result, or neither

The model is fitted in `quire_engine.profiles.step_time_calibration`; the file is that of
`quire_engine.profiles.engine_profile`.
"""
