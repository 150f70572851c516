// The report of one run: the layer that is chosen, and what is drawn of it.

const layers = data.layers;
let chosen = data.chosen;

function drawNetwork() {
  if ($("sqnr")) lineChart($("sqnr"), {
    lines: data.sqnr, labels: layers.map((layer) => layer.label), unit: "dB", most: 100, chosen,
    tell: (i) => layers[i].tell, choose: (i) => choose(i, true),
    label: "Isolated and cumulative SQNR of each layer in dB; the table of all layers holds the numbers.",
  });
}

function drawHeadroom() {
  if ($("strip")) widthStrip($("strip"), {
    pairs: layers.map((layer) => layer.widths), labels: layers.map((layer) => layer.label), limit: data.limit,
    tell: (i) => layers[i].widths.tell, choose: (i) => choose(i, true),
    label: "Proven and seen widths of each layer in bits; the narrowest are listed below.",
  });
}

function drawTrials() {
  if ($("pareto")) scatter($("pareto"), { ...data.pareto, label: "Trials by cost and metric; the table below holds the numbers." });
}

// --- the layer that is chosen

/** Shows a figure and draws it, or hides it where there is nothing to draw. */
function figure(id, facts, chart) {
  const box = $(id), whole = box.closest("figure");
  whole.hidden = !facts;
  if (!facts) return;
  whole.querySelector("figcaption span").textContent = facts.caption;
  chart(box, facts);
}

function element(tag, text, parts = []) {
  const node = document.createElement(tag);
  if (text !== null) node.textContent = text;
  node.append(...parts);
  return node;
}

function drawLayer() {
  const layer = layers[chosen];
  $("layer-name").textContent = layer.name;
  $("layer-over").textContent = layer.over;
  $("layer-place").textContent = `${chosen + 1} / ${layers.length}`;
  $("layer-said").textContent = layer.said;
  $("layer-why").replaceChildren(...layer.why.map((text) => element("li", text)));
  $("prev").disabled = chosen === 0;
  $("next").disabled = chosen === layers.length - 1;
  $("choices").hidden = !layer.choices.length;
  $("choices").querySelector("tbody").replaceChildren(...layer.choices.map((cells) => element("tr", null, cells.map((cell, i) => {
    const node = element("td", cell);
    if (i === 1 || i === 2) node.className = "num";
    return node;
  }))));
  figure("hist", layer.values, (box, facts) => valueHistogram(box, { ...facts, label: `Histogram of the float values of ${layer.name}. ${facts.caption}` }));
  figure("chan", layer.channels, (box, facts) => boxPlot(box, { ...facts, fill: "act", label: "Least, quartiles and greatest value of each channel." }));
  figure("err", layer.errors, (box, facts) => countHistogram(box, { ...facts, fill: "act", label: `Histogram of the error in steps. ${facts.caption}` }));
  figure("levels", layer.levels, (box, facts) => countHistogram(box, { ...facts, fill: "wgt", label: "Histogram of the integer weights." }));
  figure("weights", layer.weights, (box, facts) => heatMap(box, { ...facts, fill: "wgt", label: `Histogram of the float weights of each output channel. ${facts.caption}` }));
  $("no-values").hidden = layer.values !== null;
  const group = ([title, rows]) => element("div", null, [element("h4", title), ...rows.map(([k, v]) => element("div", null, [element("dt", k), element("dd", v)]))]);
  $("facts").replaceChildren(...layer.facts.map(group));
  $("tensors").hidden = !layer.tensors.length;
  $("tensors").querySelector("tbody").replaceChildren(...layer.tensors.map((cells) => element("tr", null, cells.map((cell) => element("td", cell)))));
}

function mark() {
  for (const button of document.querySelectorAll(".fall[data-layer]")) button.setAttribute("aria-pressed", String(+button.dataset.layer === chosen));
  for (const row of document.querySelectorAll("#all tbody tr")) row.classList.toggle("on", +row.dataset.layer === chosen);
}

function choose(id, look) {
  chosen = clamp(id, 0, layers.length - 1);
  mark();
  drawNetwork();
  drawLayer();
  const box = $("layer").getBoundingClientRect();
  if (look && (box.top > innerHeight - 220 || box.bottom < 160)) $("layer").scrollIntoView({ block: "start" });
}

/** The layer that the address names behind its #, if it names one. */
function addressed() {
  const names = [location.hash.slice(1)];
  try { names.push(decodeURIComponent(names[0])); } catch (error) { /* a % that is none of an address */ }
  const found = layers.findIndex((layer) => names.includes(layer.name));
  return found < 0 ? null : found;
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-layer]");
  if (button) choose(+button.dataset.layer, true);
});
if (layers.length) {
  $("prev").addEventListener("click", () => choose(chosen - 1));
  $("next").addEventListener("click", () => choose(chosen + 1));
  for (const id of ["sqnr", "layer"]) if ($(id)) $(id).addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by) return;
    event.preventDefault();
    choose(chosen + by);
  });
  sortable($("all"));
  searchable($("find"), $("all"));
  chosen = addressed() ?? chosen;
  addEventListener("hashchange", () => choose(addressed() ?? chosen, true));
}
fold($("rest"), ".falls .more", ["show", "hide"]);
for (const list of ["times", "trials", "list"]) {
  const button = $(`more-${list}`);
  if (button) fold(button, `#${list} .more`, [button.textContent, "Show fewer"]);
}
themed($("theme"));
drawn(() => {
  drawHeadroom();
  drawTrials();
  if (layers.length) { drawNetwork(); drawLayer(); mark(); }
});
