"""What is known before anything runs: model shapes, GPUs, step times, lengths, traces.

Everything here is pure and free of torch: no clock, no event loop, no randomness of its own.

    shapes          sizes of known models: parameters, weight bytes, KV bytes
    gpus            memory, bandwidth, FLOP/s, price and product names of GPUs
    capacity        how many KV blocks of a model fit a GPU
    step_time       seconds of one step from the work in it
    roofline        a step-time model from a GPU and a shape, until one has been measured
    output_length   how long requests run on, from those that have ended
    traces          recorded arrivals and lengths
    traffic         generated ones
"""
