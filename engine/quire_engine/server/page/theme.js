/** Dark, light, or as the system says; colours for canvases follow. */

import { readColors } from "./palette.js";

const ORDER = ["system", "light", "dark"];
const STORED_AS = "quire-theme";

/** @param onChange called with the colours in force, now and whenever they change */
export function startTheme(button, onChange) {
  let chosen = read();
  const apply = () => {
    if (chosen === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = chosen;
    button.textContent = `theme: ${chosen}`;
    onChange(readColors());
  };
  button.addEventListener("click", () => {
    chosen = ORDER[(ORDER.indexOf(chosen) + 1) % ORDER.length];
    write(chosen);
    apply();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", apply);
  apply();
}

function read() {
  try {
    const stored = localStorage.getItem(STORED_AS);
    return ORDER.includes(stored) ? stored : "system";
  } catch {
    return "system"; // storage is off: the choice lasts as long as the page
  }
}

function write(theme) {
  try {
    localStorage.setItem(STORED_AS, theme);
  } catch {
    // see `read`
  }
}
