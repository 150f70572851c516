// What both kinds of page do: unpack their data, fold long lists, sort and search tables, change the theme, draw anew.

const $ = (id) => document.getElementById(id);
const data = await unzipped($("data").textContent).catch((error) => {
  $("failed").hidden = false;
  throw error;
});

/** The value of JSON that is compressed, as letters. */
async function unzipped(letters) {
  const bytes = Uint8Array.from(atob(letters), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
}

/** A button that shows and hides the rows of a list beyond the first ones; without the script all are shown. */
function fold(button, rows, labels) {
  if (!button) return;
  const set = (open) => {
    button.setAttribute("aria-expanded", String(open));
    for (const row of document.querySelectorAll(rows)) row.hidden = !open;
    (button.querySelector("small") || button).textContent = labels[open ? 1 : 0];
  };
  button.hidden = false;
  button.addEventListener("click", () => set(button.getAttribute("aria-expanded") !== "true"));
  set(false);
}

/** Columns sort by data.columns[key], whose places are the rows' data-layer; values that are not known come last. */
function sortable(table) {
  const body = table.tBodies[0], rows = [...body.rows];
  for (const button of table.querySelectorAll("thead button")) button.addEventListener("click", () => {
    const head = button.closest("th"), values = data.columns[button.dataset.key], now = head.getAttribute("aria-sort");
    const way = now === "none" ? button.dataset.first : now === "ascending" ? "descending" : "ascending";
    for (const other of table.querySelectorAll("thead th")) other.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", way);
    rows.sort((a, b) => {
      const p = values[a.dataset.layer], q = values[b.dataset.layer];
      if (p === null || q === null) return (p === null) - (q === null);
      return (p < q ? -1 : p > q ? 1 : 0) * (way === "ascending" ? 1 : -1);
    });
    body.append(...rows);
  });
}

function searchable(field, table) {
  field.closest("label").hidden = false;
  field.addEventListener("input", () => {
    const text = field.value.toLowerCase();
    for (const row of table.tBodies[0].rows) row.hidden = !row.textContent.toLowerCase().includes(text);
  });
}

function themed(button) {
  const root = document.documentElement, names = { "": "Auto", light: "Light", dark: "Dark" };
  const tell = () => {
    button.textContent = names[root.dataset.theme || ""];
    button.setAttribute("aria-label", `Colours: ${button.textContent}. Change`);
  };
  button.addEventListener("click", () => {
    const next = { "": "light", light: "dark", dark: "" }[root.dataset.theme || ""];
    if (next) root.dataset.theme = next; else delete root.dataset.theme;
    try { if (next) localStorage.setItem("mrt-theme", next); else localStorage.removeItem("mrt-theme"); } catch (error) { /* a page without storage */ }
    tell();
  });
  button.hidden = false;
  tell();
}

/** Draws at once, and again where the width changes: in a frame of its own, since drawing changes sizes too. */
function drawn(draw) {
  const wide = () => document.documentElement.clientWidth;
  let width = wide();
  draw();
  new ResizeObserver(() => {
    if (wide() === width) return;
    width = wide();
    requestAnimationFrame(draw);
  }).observe(document.documentElement);
  addEventListener("beforeprint", draw);
  document.documentElement.dataset.drawn = "";
}

addEventListener("scroll", tip.hide, { passive: true });
