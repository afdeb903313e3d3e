/** One answer of /v1/chat/completions, streamed and timed. */

import { call, readEvents } from "./api.js";

/**
 * Streams an answer.
 *
 * @param body of the request, without what makes it a stream
 * @param onId called with the answer's id, onText with each piece
 * @returns {firstTokenSeconds, tokensPerSecond, usage, reason}, with null for what is not known
 */
export async function streamAnswer({ body, priority, signal, onId, onText }) {
  const startedAt = performance.now();
  const response = await call("v1/chat/completions", {
    method: "POST",
    signal,
    headers: { "content-type": "application/json", "x-quire-priority": priority },
    body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } }),
  });
  if (!response.ok) throw new Error(await describeFailure(response));
  const answer = { firstAt: null, lastAt: null, usage: null, reason: null };
  let id = null;
  for await (const { data } of readEvents(response)) {
    if (data === "[DONE]") break;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new Error(chunk.error.message);
    if (id === null) onId((id = chunk.id));
    takeChunk(answer, chunk, onText);
  }
  if (answer.reason === null) throw new Error("The connection ended before the answer did.");
  return summarize(answer, startedAt);
}

function takeChunk(answer, chunk, onText) {
  answer.usage = chunk.usage ?? answer.usage;
  const [choice] = chunk.choices;
  answer.reason = choice?.finish_reason ?? answer.reason;
  const text = choice?.delta.content;
  if (!text) return;
  answer.lastAt = performance.now();
  answer.firstAt ??= answer.lastAt;
  onText(text);
}

function summarize({ firstAt, lastAt, usage, reason }, startedAt) {
  const decodeSeconds = firstAt === null ? 0 : (lastAt - firstAt) / 1000;
  const numDecoded = (usage?.completion_tokens ?? 1) - 1;
  return {
    firstTokenSeconds: firstAt === null ? null : (firstAt - startedAt) / 1000,
    tokensPerSecond: decodeSeconds > 0 && numDecoded > 0 ? numDecoded / decodeSeconds : null,
    usage,
    reason,
  };
}

async function describeFailure(response) {
  const message = await response.json().then(
    (body) => body.error.message,
    () => `The engine answered with status ${response.status}.`,
  );
  const wait = response.headers.get("retry-after");
  return wait === null ? message : `${message} Try again in ${wait} s.`;
}
