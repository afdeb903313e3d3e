"""`quire up`: InferenceServices without a cluster, by the operator's own planner.

    FILE ── read, checked as the API server would ──► services
    services + what is seen of processes ── planner ──► Deployments, routing, status
    Deployments ──► processes          routing ──► the gateway          status ──► terminal, page

command                     flags, and the exit status
resource_file, checking     FILE: documents, the CRD's schema and rules
inventory                   GPUs that --simulate stands for, and who has them
engine_command              from a pod's template to a process's command line
process, tether             one process: its log, its end, and that it never outlives us
engine, deployment          processes in place of pods, and which of them there should be
gateway                     the gateway's process, and what it is told
folder                      private files of one run, gone after it
control                     the loop: observe, plan, make it so, say it
outlook                     whether a service can still become ready
terminal, page, page_feed   what people see
"""
