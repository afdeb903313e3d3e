"""What somebody has to do something about: the condition Degraded.

What keeps everything from working comes first: it is the reason. All else is in the message, too,
so that a harmless trouble hides no grave one.
"""

from collections.abc import Iterator, Sequence

from quire_operator.planner.findings import Findings
from quire_operator.planner.hosts import reserved_by
from quire_operator.planner.memory import Misfit
from quire_operator.planner.names import routing_name
from quire_operator.planner.observed import Observed
from quire_operator.planner.placement import Placement
from quire_operator.planner.settings import PlannerSettings
from quire_operator.planner.words import Said, num_replicas, several

_GATEWAY_DOCUMENTATION = "see docs/gateway.md"


def degraded(
    observed: Observed,
    placement: Placement,
    findings: Findings,
    misfits: Sequence[Misfit],
    settings: PlannerSettings,
) -> Said:
    """The worst of it, and then the rest."""
    found = [
        *_of_names(observed),
        *_of_the_host(observed, settings),
        *((one.reason, f"{one.accelerator}: {one.message}") for one in misfits),
        *_of_secrets(observed),
        *_of_refusals(observed),
        *_of_keys(observed),
        *_of_pods(observed, findings),
        *_of_limits(placement, findings),
        *_of_the_gateway(observed, settings),
    ]
    if not found:
        return _nothing(observed)
    (reason, first), rest = found[0], found[1:]
    more = [words if other == reason else f"{other}: {words}" for other, words in rest]
    return True, reason, "; ".join([first, *more])


_Trouble = tuple[str, str]
"""Reason and message."""


def _nothing(observed: Observed) -> Said:
    """Names that others had first inside the cluster are no trouble: one may ask by address."""
    if owners := observed.standing.inside_owners:
        names = several([f"{name} of {owner}" for name, owner in sorted(owners.items())])
        namespace, name = observed.service.key
        words = (
            "nothing is wrong; clients inside the cluster that ask the gateway by its own address"
            f" reach other services by these names, which had them first: {names}. They reach this"
            f" one by its address, {name}.{namespace}"
        )
        return False, "NameShared", words
    return False, "NothingWrong", "nothing is wrong"


def _of_names(observed: Observed) -> Iterator[_Trouble]:
    if observed.standing.name_owner:
        yield (
            "NameTaken",
            (
                f"{observed.standing.name_owner} had this model name at this host before, and keeps"
                " it until it gives it up: change model.name or ingress.host"
            ),
        )
    for alias, owner in sorted(observed.standing.alias_owners.items()):
        yield (
            "NameTaken",
            (
                f"{owner} had the name {alias} at this host before: clients that ask for it reach"
                " that one; take it out of model.aliases, or change ingress.host"
            ),
        )


def _of_refusals(observed: Observed) -> Iterator[_Trouble]:
    foreign = [f"{one.what}: {one.words}" for one in observed.refusals if one.is_foreign]
    if foreign:
        yield (
            "NameInUse",
            (
                f"others use names that this service needs: {several(foreign)}; delete what is"
                " there, or give this service another name"
            ),
        )
    refused = [f"{one.what}: {one.words}" for one in observed.refusals if not one.is_foreign]
    if refused:
        yield "ApplyRefused", f"the API server did not take {several(refused)}"
    document = f"ConfigMap {routing_name(observed.service.name)}"
    if any(one.what == document for one in observed.refusals):
        yield "ApplyRefused", "gateways keep the keys and names that they were told of before"
    pods = [
        f"{name}: {one.refused_pods}"
        for name, one in observed.deployments.items()
        if one.refused_pods
    ]
    if pods:
        yield "PodsRefused", f"no pod could be made for {several(pods)}"


def _of_secrets(observed: Observed) -> Iterator[_Trouble]:
    seen = observed.secrets
    if seen.missing:
        missing = ", ".join(seen.missing)
        yield "SecretMissing", f"there is no Secret {missing} in this namespace: create it"
    if seen.unreadable:
        words = "; ".join(seen.unreadable)
        yield "SecretUnreadable", f"{words}; what was read before stays in force"


def _of_the_host(observed: Observed, settings: PlannerSettings) -> Iterator[_Trouble]:
    wanted = observed.service.spec.ingress
    namespace = reserved_by(wanted.host, settings) if wanted else None
    if wanted and namespace:
        yield (
            "HostReserved",
            (
                f"{wanted.host} is the address of a Service in {namespace}, by which clients inside"
                " the cluster reach all services: nothing leads in from outside; change"
                " ingress.host to a host name of your own"
            ),
        )


def _of_keys(observed: Observed) -> Iterator[_Trouble]:
    if problems := observed.secrets.keys.problems:
        yield "ApiKeysInvalid", f"of the Secret with API keys {several(problems)}"


def _of_pods(observed: Observed, findings: Findings) -> Iterator[_Trouble]:
    num_old = findings.num_old_ready if findings.is_rolling else 0
    verb = "serves" if num_old == 1 else "serve"
    kept = f"; {num_replicas(num_old)} of the old revision {verb} on" if num_old else ""
    if findings.trouble:
        yield findings.trouble.reason, findings.trouble.message + kept
        return
    stuck = [one.accelerator for one in observed.deployments.values() if one.is_stuck]
    if stuck:
        yield "RolloutStuck", f"no progress on {', '.join(stuck)}{kept}"


def _of_limits(placement: Placement, findings: Findings) -> Iterator[_Trouble]:
    if placement.num_missing:
        yield (
            "MaxReplicasReached",
            (
                f"{placement.num_missing} of {num_replicas(findings.num_wanted)} fit no"
                " accelerator's maxReplicas: raise it, or add an accelerator"
            ),
        )


def _of_the_gateway(observed: Observed, settings: PlannerSettings) -> Iterator[_Trouble]:
    """Engines take requests from the gateway alone, so without one nobody is answered."""
    if settings.is_local or observed.service.spec.suspend:
        return
    if settings.gateway is None:
        yield (
            "NoGateway",
            (
                "the service's address leads to its engines, which answer 401 to all but a gateway:"
                f" run one ({_GATEWAY_DOCUMENTATION}), and the operator with --gateway-namespace"
            ),
        )
    elif not any(pods.taking for pods in observed.gateways.values()):
        place = settings.gateway.namespace
        watched = " (this operator sees pods of --namespaces alone)"
        yield (
            "NoGateway",
            (
                f"no pod of the gateway is ready in the namespace {place}, so the service's address"
                f" leads nowhere{watched if observed.nodes is None else ''}: run one"
                f" ({_GATEWAY_DOCUMENTATION})"
            ),
        )
