"""The engine as the routes see it: a core, a tokenizer, a name, and whether it takes requests."""

import hashlib
import time
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec

from quire_engine import __version__
from quire_engine.config import EngineConfig
from quire_engine.config.values import split
from quire_engine.core.client import CoreClient
from quire_engine.errors import RequestError
from quire_engine.execution.base import Progress
from quire_engine.models.generation_defaults import GenerationDefaults
from quire_engine.models.shorter_embeddings import ShorterEmbeddings, read_shorter_embeddings
from quire_engine.profiles.files import is_profile_file, read_profile
from quire_engine.protocol.grammar import Grammar, GrammarSpec
from quire_engine.protocol.live_state import LiveState
from quire_engine.protocol.messages import ModelFacts
from quire_engine.protocol.state import EngineState, Loading, write_compact
from quire_engine.server.activity import Activity
from quire_engine.server.arrivals import GatewayArrivals
from quire_engine.server.background import run_in_daemon_thread
from quire_engine.server.count_board import CountBoard, Gauge
from quire_engine.server.drain import Drain
from quire_engine.server.errors import ApiError
from quire_engine.server.grammar_process import TrialSetup
from quire_engine.server.grammars import Grammars
from quire_engine.server.metrics import ServerMetrics
from quire_engine.server.model_files import choose_defaults, choose_tokenizer, find_model
from quire_engine.server.progress import noting
from quire_engine.server.prompts import most_characters
from quire_engine.server.rendering import TemplateRenderer
from quire_engine.server.schemas.models import Health
from quire_engine.server.state_feed import StateFeed
from quire_engine.server.state_report import describe_state
from quire_engine.server.steering import OwnSteering, Steering
from quire_engine.server.tools.setup import ToolSetup, choose_setup
from quire_engine.sources import model_name as name_of_source
from quire_engine.sources import repository_of
from quire_engine.tokenizing.reasoning import ReasoningParser, choose_parser
from quire_engine.tokenizing.tokenizer import Tokenizer

_LOADING_RETRY_SECONDS = 5.0


def choose_model_name(config: EngineConfig) -> str:
    """What clients put in "model": as configured, else after the model's file or shape."""
    if config.model.served_model_name is not None:
        return split(config.model.served_model_name)[0]
    simulate, shape = config.executor.simulate, config.executor.model_shape
    if simulate is not None and (shape is not None or is_profile_file(simulate)):
        return shape or read_profile(simulate).model
    if config.executor.command is not None:
        return "command"
    return name_of_source(config.model.source)


def choose_model_names(config: EngineConfig) -> tuple[str, ...]:
    """Every name that clients may put in "model": the model's own first, then its aliases."""
    names = split(config.model.served_model_name) or (choose_model_name(config),)
    repository = repository_of(config.model.source)
    if repository and config.model.served_model_name is None:
        names = (*names, repository)  # what vLLM's clients call it
    return tuple(dict.fromkeys((*names, *split(config.model.model_aliases))))


class Service:
    """Everything behind the routes. Made before the model is loaded; `load` brings it to life.

    Parameters
    ----------
    board
        Where this process's counts are, with those of others that answer for the same engine.
    steering
        Where orders of operators go; None: here.
    """

    def __init__(
        self,
        config: EngineConfig,
        *,
        board: CountBoard | None = None,
        steering: Steering | None = None,
    ) -> None:
        self.config = config
        self.model_names = choose_model_names(config)
        self.model_name = self.model_names[0]
        self.created_at = int(time.time())
        self.metrics = ServerMetrics(self.model_name, board)
        self.config_hash = hashlib.sha256(msgspec.json.encode(config)).hexdigest()[:16]
        self.activity = Activity(self.metrics.requests_in_flight)
        self.arrivals = GatewayArrivals(self.metrics.board)
        self.feed = StateFeed()
        self.drain = Drain(self.fail_drained)
        self._own_steering = OwnSteering(self.drain, self.feed)
        self.steering = steering or self._own_steering
        self.is_stopping = False
        """Not ready any more, for a signal came, though requests are still taken."""
        self.is_closed = False
        """No request is taken any more."""
        self.was_ready = False
        """Whether the model has been loaded once."""
        self.model_revision: str | None = None
        """The commit that the model's files are of, where their source has such."""
        self.generation_defaults = GenerationDefaults()
        """How the model's makers want it sampled."""
        self.shorter_embeddings = ShorterEmbeddings()
        """Whether its embeddings may be cut short."""
        self._tokenizer: Tokenizer | None = None
        self.renderer: TemplateRenderer | None = None
        """Writes conversations; None while loading, and for models without a chat template."""
        self._grammars: Grammars | None = None
        self.reasoning_parser: ReasoningParser | None = None
        """How the model's reasoning is told from its answers; None if it is not."""
        self.tool_setup = ToolSetup()
        """How the model is told of tools, and how it calls them."""
        self._client: CoreClient | None = None
        self._loading: Loading | None = None

    async def load(self, report: Progress) -> None:
        """Fetch the model, start the core, and wait until both can take requests.

        Raises
        ------
        QuireError
            The model cannot be fetched, read or held; the message says what to do.
        """
        fetching = noting("fetching", self.note_loading, report)
        model = await run_in_daemon_thread(lambda: find_model(self.config, fetching))
        path = None if model is None else model.path
        self.model_revision = None if model is None else model.revision
        # before the core, which reads the weights: what the server cannot use is told at once
        await self.read_defaults(path)
        loading = noting("loading", self.note_loading, report)
        client = CoreClient(self.config, path, on_progress=loading, on_news=self.feed.bump)
        self._own_steering.client = client
        self.use_core(client)
        await client.start()
        self.open(await self.prepare(path))
        self.feed.bump()

    def note_loading(self, loading: Loading | None) -> None:
        """The model has come so far; may be called from any thread."""
        self._loading = loading

    def use_core(self, client: CoreClient) -> None:
        """Have this core, which may still be loading."""
        self._client = client
        self.metrics.watch_core(client)

    async def read_defaults(self, path: Path | None) -> None:
        """Read how the model's makers want it sampled.

        Raises
        ------
        ModelError
            They say what cannot be used.
        """
        self.generation_defaults = await run_in_daemon_thread(
            lambda: choose_defaults(self.config, path)
        )
        self.shorter_embeddings = await run_in_daemon_thread(lambda: read_shorter_embeddings(path))

    async def prepare(self, path: Path | None) -> Tokenizer:
        """Load the tokenizer, wait until the core is ready, and start what writes conversations.

        Raises
        ------
        QuireError
            The tokenizer cannot be used, or the core could not start.
        """
        tokenizer = await run_in_daemon_thread(lambda: choose_tokenizer(self.config, path))
        facts = await self.client.wait_ready()
        await self._start_renderer(tokenizer, facts)
        setup = TrialSetup(
            config=self.config,
            model_path=None if path is None else str(path),
            width=facts.vocab_size,
        )
        self._grammars = Grammars(setup, self.metrics.grammars, self.client.use_vocabulary)
        self.reasoning_parser = choose_parser(
            self.config.model.reasoning_parser, tokenizer.chat_template
        )
        self.tool_setup = choose_setup(self.config.model.tool_call_parser, tokenizer)
        return tokenizer

    def open(self, tokenizer: Tokenizer) -> None:
        """Take requests from now on."""
        self._tokenizer = tokenizer
        self.was_ready = True

    async def _start_renderer(self, tokenizer: Tokenizer, facts: ModelFacts) -> None:
        if tokenizer.chat_template is not None:
            max_characters = most_characters(tokenizer, facts)
            renderer = TemplateRenderer(tokenizer.chat_template, max_characters)
            await renderer.start()
            self.renderer = renderer

    async def close(self) -> None:
        """End the core process."""
        if self.renderer is not None:
            await self.renderer.close()
        if self._grammars is not None:
            await self._grammars.close()
        if self._client is not None:
            await self._client.close()

    @property
    def is_ready(self) -> bool:
        """Whether a load balancer should send requests here."""
        is_loaded = self._client is not None and self._tokenizer is not None
        return is_loaded and self.client.is_ready and not self.is_draining

    @property
    def loading(self) -> Loading | None:
        """How far the model has come; None once it is loaded."""
        has_model = self._tokenizer is not None and self._client is not None
        return None if has_model and self.client.facts is not None else self._loading

    @property
    def is_draining(self) -> bool:
        """Whether it is being taken out of service, by a signal or by an operator."""
        return self.is_stopping or self.drain.is_on

    @property
    def num_in_flight(self) -> int:
        """Requests being answered, by all API processes."""
        return sum(self.metrics.board.gauges(Gauge.REQUESTS))

    @property
    def age_seconds(self) -> float:
        """How long ago the core was last heard; 0 before there is one."""
        return self._client.age_seconds if self._client else 0.0

    @property
    def client(self) -> CoreClient:
        """The core."""
        if self._client is None:
            raise _not_ready()
        return self._client

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        if self._tokenizer is None:
            raise _not_ready()
        return self._tokenizer

    @property
    def facts(self) -> ModelFacts:
        """What the loaded model can take."""
        facts = self.client.facts
        if facts is None:
            raise _not_ready()
        return facts

    @property
    def max_model_len(self) -> int | None:
        """Most tokens of prompt and output together; None while the model is loading."""
        facts = self._client.facts if self._client else None
        return facts.max_model_len if facts else None

    def check_open(self) -> None:
        """Refuse a request that cannot be served now.

        Raises
        ------
        ApiError
            503 while loading, restarting, draining or shutting down.
        """
        if self.is_closed or self.drain.is_on:
            self.metrics.refuse("draining")
            is_draining = not self.is_closed
            raise ApiError(
                503,
                f"The server is {'draining' if is_draining else 'shutting down'};"
                " send the request to another one.",
                code="draining" if is_draining else "shutting_down",
                retry_after_seconds=_LOADING_RETRY_SECONDS,
            )
        if self._tokenizer is None or self._client is None or not self._client.is_ready:
            self.metrics.refuse("not_ready")
            raise _not_ready()

    def check_model(self, name: str) -> None:
        """Refuse a model that is not served here.

        Raises
        ------
        ApiError
            404, with the name of the model that is.
        """
        if name not in self.model_names:
            raise ApiError(
                404,
                f"The model {name[:200]!r} does not exist; this server has {self.model_name!r}.",
                param="model",
                code="model_not_found",
            )

    async def prepare_grammar(self, spec: GrammarSpec | None) -> Grammar | None:
        """Return the grammar of what an answer has to look like, tried and known to the core.

        Raises
        ------
        RequestError
            It cannot be heeded, or not by this engine.
        ApiError
            Too many are being tried.
        """
        if spec is None:
            return None
        if self.config.executor.command is not None:
            raise RequestError(
                "this engine computes with a command, which knows nothing of grammars; leave the"
                " form of the answer out",
                parameter="response_format",
            )
        if self._grammars is None:
            raise _not_ready()
        return await self._grammars.prepare(spec)

    def stop_soon(self) -> None:
        """Be not ready any more, though requests are still taken."""
        self.is_stopping = True
        self.feed.bump()

    def refuse_all(self) -> None:
        """Take no request any more."""
        self.is_closed = True

    async def wait_idle(self) -> None:
        """Return as soon as no request is being answered."""
        await self.activity.wait_idle()

    def fail_running(self) -> None:
        """End all requests with an error, for the server ends."""
        self._fail_all("The server shut down before this request was finished.")

    def health(self) -> Health:
        """What probes are told."""
        if self.is_draining:
            return Health(status="draining")
        if self.is_ready:
            return Health(status="ok")
        return Health(status="restarting" if self.was_ready else "loading")

    def state(self, *, chunks_from: int = 0) -> EngineState:
        """The engine's account of itself, with prefix-chunk events from this number on."""
        return describe_state(self, self._client, chunks_from=chunks_from)

    def watch_core(self) -> AbstractContextManager[None]:
        """Have views in `live_state` for as long as the block runs.

        Raises
        ------
        ApiError
            503: there is no core yet.
        """
        return self.client.watch()

    def live_state(self) -> LiveState:
        """What people who watch are shown."""
        client = self._client
        return LiveState(
            version=__version__,
            status=self.health().status,
            state=self.state(chunks_from=client.prefix_ring.next_number if client else 0),
            view=client.latest_view if client else None,
        )

    def compact_state(self) -> str:
        """The state as a header."""
        return write_compact(
            self._client.latest_stats if self._client else None, self.feed.sequence
        )

    def fail_drained(self) -> None:
        """End all requests with an error, for the time of a drain is over."""
        self._fail_all("The engine was drained before this request was finished.")

    def _fail_all(self, message: str) -> None:
        self.activity.give_up()
        if self._grammars is not None:
            self._grammars.give_up()
        if self._client is not None:
            self._client.fail_all(message)


def _not_ready() -> ApiError:
    return ApiError(
        503,
        "The engine is not ready: it is loading the model, or starting again after a failure."
        " Send the request again in a moment.",
        code="not_ready",
        retry_after_seconds=_LOADING_RETRY_SECONDS,
    )
