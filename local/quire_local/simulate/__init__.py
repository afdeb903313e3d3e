"""A cluster in virtual time: real schedulers, the gateway's own choice, and whoever scales them.

    trace ──► gateway ──► engines (EngineCore, macro-steps) ──► answers ──► figures
                ▲  │          ▲
         states │  │ demand   │ replicas start, serve, drain, die
                │  ▼          │
               scaler ──────► fleet

No threads, no event loop and no clock but the agenda's: one seed, one result, bit by bit.

    agenda       what happens when
    hardware     GPU types: step times, memory, price, delays, limits
    jobs         requests and what becomes of them
    engine       one engine core
    gateway      the gateway's service, and a request's way through it
    fleet        replicas of every type
    faults       what breaks
    observing    what a scaler sees
    scalers      rivals and the operator's own code
    simulation   all of it together
    results      figures
    report       a table, JSON and a page
"""
