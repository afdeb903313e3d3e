/** Puts the page together: one connection, and the parts that show what comes over it. */

import { Chat } from "./chat.js";
import { Connection } from "./connection.js";
import { count, rate, setText } from "./format.js";
import { BlockGrid } from "./grid.js";
import { KeyDialog } from "./key.js";
import { Legend } from "./legend.js";
import { PressureMeter, describeEngine, hitRate } from "./meters.js";
import { Rates, drawChart } from "./rates.js";
import { RequestTable } from "./requests.js";
import { startTheme } from "./theme.js";

const find = (id) => document.getElementById(id);

const STATUS_TEXTS = {
  ok: "ready",
  loading: "loading",
  restarting: "restarting",
  draining: "draining",
  lost: "connection lost",
};
const BANNERS = {
  ok: "",
  loading: "The model is loading. This page fills itself when it is ready.",
  restarting: "The engine's core is starting again. Requests that ran were ended with an error.",
  draining: "Draining: requests that run are finished, new ones are refused.",
  lost: "The connection to the engine is lost. What you see is the last that was heard; the page "
    + "tries again by itself.",
};

const keyDialog = new KeyDialog({
  dialog: find("key-dialog"),
  form: find("key-form"),
  input: find("key-input"),
  cancel: find("key-cancel"),
});
const askForKey = () => keyDialog.ask();

const requests = new RequestTable({
  body: find("requests"),
  empty: find("no-requests"),
  summary: find("requests-summary"),
  onPick: (number) => grid.light(number),
});
const grid = new BlockGrid({
  box: find("grid"),
  canvas: find("grid-canvas"),
  readout: find("grid-readout"),
  onPick: (number) => requests.pick(number),
});
const legend = new Legend(find("legend"));
const pressure = new PressureMeter({
  figure: find("pressure"),
  binding: find("binding"),
  terms: find("terms"),
});
const rates = new Rates();
const chat = new Chat({
  elements: {
    form: find("chat-form"),
    input: find("chat-input"),
    log: find("chat-log"),
    note: find("chat-note"),
    empty: find("chat-empty"),
    stop: find("chat-stop"),
    send: find("chat-send"),
    clear: find("chat-clear"),
    settings: {
      temperature: find("set-temperature"),
      topP: find("set-top-p"),
      maxTokens: find("set-max-tokens"),
      priority: find("set-priority"),
    },
  },
  askForKey,
  onId: (id) => requests.own(id),
});

let colors = null;
let numRestarts = null;

function showStatus(status) {
  find("status").dataset.status = status;
  setText(find("status-text"), STATUS_TEXTS[status]);
  const banner = find("banner");
  setText(banner, BANNERS[status]);
  banner.hidden = BANNERS[status] === "";
  find("board").classList.toggle("is-stale", status === "lost");
}

function showRates(view) {
  const latest = view === null ? {} : rates.add(view);
  for (const key of ["decode", "prefill"]) {
    const figure = latest[key] ?? null;
    const text = figure === null ? "–" : rate(figure);
    setText(find(`${key}-rate`), text);
    const chart = find(`${key}-chart`);
    chart.setAttribute("aria-label", `${key}: ${text} tokens per second now`);
    drawChart(chart, rates.points, key, colors);
  }
  const step = latest.stepSeconds ?? null;
  setText(find("step-time"), step === null ? "–" : rate(1000 * step));
}

function summarize({ held, total, reserved }) {
  const share = ((100 * held) / total).toFixed(1);
  return `${count(held)} of ${count(total)} held (${share} %), `
    + `${count(reserved)} at the predicted peak`;
}

function showBlocks(blocks, view) {
  grid.show(view);
  legend.show(blocks, view === null ? null : view.map.num_shared);
  const summary = blocks.total > 0 ? summarize(blocks) : "no blocks yet";
  setText(find("blocks-summary"), summary);
  find("grid-canvas").setAttribute("aria-label", `Map of KV blocks: ${summary}`);
}

function showLive(live) {
  const { state, view, status } = live;
  if (state.num_core_restarts !== numRestarts) {
    numRestarts = state.num_core_restarts;
    requests.clear();
    rates.clear();
  }
  showStatus(status);
  document.title = `${state.model_id} · quire`;
  setText(find("model"), state.model_id);
  setText(find("facts"), describeEngine(live));
  pressure.show(state.pressure);
  showRates(view);
  setText(find("hit-rate"), hitRate(view));
  setText(find("preemptions"), count(state.num_preemptions));
  setText(find("restarts"), count(state.num_core_restarts));
  showBlocks(view === null ? state.blocks : view.blocks, view);
  requests.show(view ?? {
    requests: [],
    num_running: state.sequences.running,
    num_waiting: state.sequences.waiting,
  });
  chat.use(state.is_ready ? state.model_id : null);
}

startTheme(find("theme"), (changed) => {
  colors = changed;
  grid.use(colors);
  legend.use(colors);
  requests.use(colors);
});

// One picture for each frame that is shown, however many states come meanwhile.
let latest = null;
let isScheduled = false;

new Connection({
  onLive: (live) => {
    latest = live;
    if (isScheduled) return;
    isScheduled = true;
    requestAnimationFrame(() => {
      isScheduled = false;
      showLive(latest);
    });
  },
  onLost: () => {
    showStatus("lost");
    chat.use(null);
  },
  askForKey,
}).start();
