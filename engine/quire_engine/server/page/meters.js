/** Pressure with its terms, and the figures beside the charts. */

import { count, make, percent, setText } from "./format.js";

const TERMS = { blocks: "blocks", seats: "seats", first_token: "first token", step: "step" };
const EDGE = 0.8; // where 1 is on the track, as the style sheet draws it

export class PressureMeter {
  constructor({ figure, binding, terms }) {
    this.figure = figure;
    this.binding = binding;
    this.rows = {};
    for (const [key, label] of Object.entries(TERMS)) {
      const row = make("div");
      row.dataset.term = key;
      const track = make("div", "track");
      const fill = make("div", "track-fill");
      const value = make("dd", "", "–");
      const middle = make("dd");
      track.setAttribute("aria-hidden", "true");
      track.append(fill);
      middle.append(track);
      row.append(make("dt", "", label), middle, value);
      terms.append(row);
      this.rows[key] = { row, fill, value };
    }
  }

  show(pressure) {
    setText(this.figure, pressure === null ? "–" : pressure.value.toFixed(2));
    const isQuiet = pressure === null || pressure.value === 0;
    setText(this.binding, isQuiet ? "" : `bound by ${TERMS[pressure.binding]}`);
    for (const [key, { row, fill, value }] of Object.entries(this.rows)) {
      const term = pressure?.terms[key] ?? 0;
      row.classList.toggle("is-binding", !isQuiet && pressure.binding === key);
      row.classList.toggle("is-over", term > 1);
      fill.style.width = `${Math.min(100, 100 * EDGE * term)}%`;
      setText(value, pressure === null ? "–" : term.toFixed(2));
    }
  }
}

/** What the engine is: for the line under its name. */
export function describeEngine(live) {
  const { state, view, version } = live;
  const parts = [];
  if (view !== null) parts.push(view.executor);
  if (state.max_model_len > 0) {
    parts.push(`${count(state.max_model_len)} tokens of context`);
    parts.push(`${count(state.tokens_per_block)} per block`);
    parts.push(`${count(state.sequences.slots)} seats`);
  }
  parts.push(`quire ${version}`);
  return parts.join(" · ");
}

export function hitRate(view) {
  if (view === null || view.num_prefix_queries === 0) return "–";
  return percent(view.num_prefix_hits / view.num_prefix_queries);
}
