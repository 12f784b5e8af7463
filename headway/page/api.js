// Calls of the public API, with the reader's token where the server wants one, and the stream of changes.

function headers(more) {
  const token = sessionStorage.getItem("token");
  return { ...(token ? { Authorization: `Bearer ${token}` } : {}), ...more };
}
let asking = null;
function token() {
  asking ??= new Promise((done) => {
    const dialog = document.getElementById("token-dialog"), field = document.getElementById("token");
    dialog.showModal();
    dialog.addEventListener("close", () => {
      if (field.value) sessionStorage.setItem("token", field.value.trim());
      asking = null;
      done(Boolean(field.value));
    }, { once: true });
  });
  return asking;
}
async function answer(path, options) {
  const response = await fetch(path, { ...options, headers: headers(options?.headers) }).catch(() => { throw new Error("the server does not answer"); });
  if (response.status === 401 && (await token())) return answer(path, options);
  const body = await response.json().catch(() => { throw new Error(`the answer (${response.status}) is no JSON: is something else at this address?`); });
  if (!response.ok) throw Object.assign(new Error(body.detail || response.statusText), { status: response.status });
  return body;
}
export const get = (path, signal) => answer(path, { signal });
export const send = (method, path, body) =>
  answer(path, { method, body: JSON.stringify(body), headers: { "Content-Type": "application/json", "X-Headway-Actor": "page" } });

/** Calls `heard(kind, document)` for every change; reconnects with patience; `state(text)` hears how the link is. */
export async function listen(heard, state) {
  for (let wait = 1000; ; wait = Math.min(wait * 2, 30000)) {
    try {
      const response = await fetch("/v1/events", { headers: headers({ Accept: "text/event-stream" }) });
      if (!response.ok) throw new Error(response.statusText);
      state("live");
      wait = 1000;
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        const blocks = (rest + value).split(/\r?\n\r?\n/);
        rest = blocks.pop();
        for (const block of blocks) {
          const kind = /^event: ?(.*)$/m.exec(block), data = /^data: ?(.*)$/m.exec(block);
          if (kind && data) heard(kind[1].trim(), JSON.parse(data[1]));
        }
      }
    } catch { /* the server went away: the state says so, and we ask again */ }
    state("away");
    await new Promise((go) => setTimeout(go, wait));
  }
}
