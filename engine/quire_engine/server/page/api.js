/** Requests to the engine, with its API key if it demands one, and server-sent events. */

let apiKey = null; // in memory alone: gone with the page

export class KeyDemanded extends Error {}

export function useKey(key) {
  apiKey = key;
}

/**
 * Fetches a path of this server, relative to the page so that a proxy may put it under a prefix.
 * Throws KeyDemanded when the server wants another key.
 */
export async function call(path, { headers = {}, ...options } = {}) {
  const authorization = apiKey === null ? {} : { authorization: `Bearer ${apiKey}` };
  const response = await fetch(new URL(path, document.baseURI), {
    ...options,
    headers: { ...headers, ...authorization },
    cache: "no-store",
    credentials: "same-origin",
    redirect: "error",
  });
  if (response.status === 401) throw new KeyDemanded("The engine demands an API key.");
  return response;
}

/** Yields {name, data} of each event of a response's body. */
export async function* readEvents(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const parts = (rest + value).split(/\r?\n\r?\n/);
      rest = parts.pop();
      for (const part of parts) yield parseEvent(part);
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function parseEvent(text) {
  const event = { name: "message", data: "" };
  for (const line of text.split(/\r?\n/)) {
    if (line.startsWith("event:")) event.name = line.slice(6).trim();
    else if (line.startsWith("data:")) event.data += line.slice(5).trimStart();
  }
  return event;
}
