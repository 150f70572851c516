// The charts of a report: each takes an element and plain data and fills the element with one SVG as wide as it.
const NS = "http://www.w3.org/2000/svg";
const color = (name) => `var(--${name})`;
const clamp = (v, lo, hi) => Math.max(lo, Math.min(hi, v));
const tick = (v) => String(+v.toPrecision(6)).replace("-", "−").replace("e+", "e");

/** Numbers packed by two letters of 64 each: 4095 stands for none, the others are even steps from lo to hi. */
function unpack({ lo, hi, packed }) {
  const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const found = [];
  for (let i = 0; i < packed.length; i += 2) {
    const code = letters.indexOf(packed[i]) * 64 + letters.indexOf(packed[i + 1]);
    found.push(code === 4095 ? null : lo + ((hi - lo) * code) / 4094);
  }
  return found;
}

// --- what all charts are made of

function draw(tag, attributes, parent, text) {
  const node = document.createElementNS(NS, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  if (parent) parent.append(node);
  return node;
}

function canvas(box, height, label) {
  const width = Math.max(box.clientWidth, 200);
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": label });
  box.replaceChildren(svg);
  return { svg, width, height };
}

const linear = (lo, hi, from, to) => (v) => from + ((v - lo) / (hi - lo || 1)) * (to - from);

/** At most count + 1 round numbers from lo to hi. */
function ticks(lo, hi, count) {
  if (!(hi > lo)) return [lo];
  const raw = (hi - lo) / count, unit = 10 ** Math.floor(Math.log10(raw));
  const step = unit * [1, 2, 5, 10].find((m) => m * unit >= raw * (1 - 1e-9));
  const found = [];
  for (let i = Math.ceil(lo / step - 1e-9); i * step <= hi + step * 1e-9; i++) found.push(i === 0 ? 0 : i * step);
  return found;
}

function leftAxis(svg, values, y, from, to, show = tick) {
  for (const v of values) {
    draw("line", { class: "grid", x1: from, x2: to, y1: y(v), y2: y(v) }, svg);
    draw("text", { x: from - 6, y: y(v) + 4, "text-anchor": "end" }, svg, show(v));
  }
}

function bottomAxis(svg, lo, hi, x, base, width, label = "") {
  draw("line", { class: "axis", x1: x(lo), x2: x(hi), y1: base, y2: base }, svg);
  const room = label ? width - label.length * 6 - 18 : width - 8;
  for (const v of ticks(lo, hi, width < 420 ? 4 : 8)) {
    const at = clamp(x(v), 10, width - 10);
    if (at <= room) draw("text", { x: at, y: base + 15, "text-anchor": "middle" }, svg, tick(v));
  }
  if (label) draw("text", { x: width, y: base + 15, "text-anchor": "end" }, svg, label);
}

/** Names below a chart, as many as fit; `at` gives the middle of each. */
function names(svg, list, at, y, width) {
  let end = -9;
  list.forEach((name, i) => {
    const half = name.length * 3.1, x = clamp(at(i), half, width - half);
    if (x - half < end + 10) return;
    draw("text", { x, y, "text-anchor": "middle" }, svg, name);
    end = x + half;
  });
}

/** An invisible column over each of `count` places: hovering tells, a click chooses. */
function columns(svg, count, at, pitch, height, tell, choose) {
  for (let i = 0; i < count; i++) {
    const from = Math.max(0, at(i) - pitch / 2), to = Math.min(svg.viewBox.baseVal.width, at(i) + pitch / 2);
    const hit = draw("rect", { class: "hit", x: from, y: 0, width: to - from, height }, svg);
    hit.addEventListener("mousemove", (event) => tip.show(event, tell(i)));
    hit.addEventListener("mouseleave", tip.hide);
    if (choose) hit.addEventListener("click", () => choose(i));
  }
}

const tip = {
  show(event, text) {
    const box = document.getElementById("tip");
    box.textContent = text;
    box.hidden = false;
    const above = event.clientY - box.offsetHeight - 12;
    box.style.left = clamp(event.clientX + 14, 8, Math.max(8, innerWidth - box.offsetWidth - 8)) + "px";
    box.style.top = (above < 50 ? event.clientY + 18 : above) + "px";
  },
  hide() { document.getElementById("tip").hidden = true; },
};

// --- 1. lines: values along the network

/** A line that breaks where a value is missing. */
function broken(values, x, y) {
  let path = "", pen = "M";
  values.forEach((v, i) => {
    if (v === null) { pen = "M"; return; }
    path += `${pen}${x(i).toFixed(1)} ${y(v).toFixed(1)}`;
    pen = "L";
  });
  return path;
}

/** lines: [{label, color, values}], the last in front. No value: the line breaks; one above `most` is drawn there. */
function lineChart(box, { lines, labels, unit, most, chosen, tell, choose, label }) {
  const { svg, width, height } = canvas(box, 244, label);
  const all = lines.flatMap((line) => line.values).filter((v) => v !== null).map((v) => Math.min(v, most));
  if (!all.length) return;
  const count = labels.length, narrow = width < 560, left = 34, right = narrow ? 8 : 92, top = 20, base = height - 26;
  const hi = Math.min(most, Math.ceil((Math.max(...all) + 1) / 10) * 10), lo = Math.min(hi - 10, Math.floor((Math.min(...all) - 1) / 10) * 10);
  const x = count > 1 ? linear(0, count - 1, left + 10, width - right) : () => (left + width - right) / 2;
  const y = (v) => linear(lo, hi, base, top)(Math.min(v, hi)), pitch = (width - right - left) / count;
  leftAxis(svg, ticks(lo, hi, 7), y, left, width - right + 6);
  draw("text", { x: left, y: 8 }, svg, hi === most ? `${unit}, at most ${most}` : unit);
  if (chosen !== null) draw("line", { class: "sel", x1: x(chosen), x2: x(chosen), y1: top, y2: base }, svg);
  let taken = -99;
  for (const line of lines) {
    const last = line.values.reduce((found, v, i) => (v === null ? found : i), null);
    if (last === null) continue;
    draw("path", { d: broken(line.values, x, y), fill: "none", stroke: color(line.color), "stroke-width": 1.8 }, svg);
    const r = clamp(pitch / 5, 0.8, 2.8);
    const dot = (v, i) => (v === null ? "" : `M${(x(i) - r).toFixed(1)} ${y(v).toFixed(1)}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`);
    draw("path", { d: line.values.map(dot).join(""), fill: color(line.color) }, svg);
    if (narrow) continue;
    let at = y(line.values[last]) + 4;
    if (Math.abs(at - taken) < 13) at = taken + (at < taken ? -13 : 13);
    taken = at;
    draw("text", { x: x(last) + 9, y: at, class: line.color }, svg, line.label);
  }
  names(svg, labels, x, height - 8, width);
  columns(svg, count, x, pitch, height, tell, choose);
}

// --- 2. histogram, with a quantizer's range and levels or with limits

/** The outline of bars of even width, down to `base`. */
function outline(heights, from, to, base) {
  const step = (to - from) / heights.length;
  let path = `M${from.toFixed(1)} ${base}`;
  heights.forEach((h, i) => {
    path += `V${h.toFixed(1)}H${(from + (i + 1) * step).toFixed(1)}`;
  });
  return path + `V${base}Z`;
}

const superscript = (n) => [...String(n)].map((c) => (c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[c])).join("");
const percentOfPower = (e) => (e >= -5 ? tick(10 ** (e + 2)) : "10" + superscript(e + 2)) + " %";

/** counts: {lo, hi, packed}, log10 of the share of each bin. range: [lo, hi] of the quantizer, or null. */
function valueHistogram(box, { from, to, counts, range, levels, said, label }) {
  const { svg, width, height } = canvas(box, 176, label);
  const shares = unpack(counts), met = shares.filter((v) => v !== null);
  if (!met.length) return;
  const top = 26, base = height - 22, left = 50, pad = 0.015 * (to - from) || 0.5;
  const x = linear(from - pad, to + pad, left, width - 4);
  const most = Math.max(...met), least = Math.min(most - 2, Math.min(...met)) - 0.4, y = linear(least, most, base, top);
  if (range) {
    const [a, b] = [clamp(range[0], from - pad, to + pad), clamp(range[1], from - pad, to + pad)];
    draw("rect", { x: x(a), y: top - 4, width: Math.max(1, x(b) - x(a)), height: base - top + 4, fill: color("band") }, svg);
    draw("text", { x: (x(a) + x(b)) / 2, y: top - 10, "text-anchor": "middle" }, svg, said);
  }
  const powers = [];
  for (let e = Math.floor(most), jump = most - least > 4 ? 2 : 1; e > least; e -= jump) powers.push(e);
  leftAxis(svg, powers, y, left, width - 4, percentOfPower);
  const heights = shares.map((v) => (v === null ? base : y(v)));
  draw("path", { d: outline(heights, x(from), x(to), base), fill: color("act"), "fill-opacity": 0.55, stroke: color("act") }, svg);
  if (range) quantizer(svg, range, levels, x, top, base, from - pad, to + pad);
  bottomAxis(svg, from, to, x, base, width);
  const step = (to - from) / shares.length, pitch = (x(to) - x(from)) / shares.length;
  const tell = (i) => `${tick(+(from + i * step).toPrecision(4))} to ${tick(+(from + (i + 1) * step).toPrecision(4))}\n` +
    (shares[i] === null ? "no value" : `${tick(+(100 * 10 ** shares[i]).toPrecision(2))} % of values`);
  columns(svg, shares.length, (i) => x(from) + (i + 0.5) * pitch, pitch, base, tell);
}

/** The ends of a quantizer's range as lines, its levels as a rug where they are far enough apart to be told. */
function quantizer(svg, range, levels, x, top, base, lo, hi) {
  const apart = (x(range[1]) - x(range[0])) / Math.max(1, levels - 1);
  let rug = "";
  for (let i = 0; i < levels && apart >= 1.9; i++) {
    const v = range[0] + ((range[1] - range[0]) * i) / (levels - 1);
    if (v >= lo && v <= hi) rug += `M${x(v).toFixed(1)} ${base}v5`;
  }
  draw("path", { d: rug, stroke: color("faint"), "stroke-width": apart > 5 ? 1.2 : 0.6 }, svg);
  range.forEach((v, i) => {
    if (v < lo || v > hi) return;
    draw("line", { x1: x(v), x2: x(v), y1: top - 18, y2: base, stroke: color("ink"), "stroke-width": 1.25 }, svg);
    const outside = i ? x(v) < 60 : false;
    draw("text", { class: "strong", x: x(v) + (i && !outside ? -5 : 5), y: top - 10, "text-anchor": i && !outside ? "end" : "start" }, svg, tick(+v.toPrecision(4)));
  });
}

/** Counts from `from` to `to`; dashed lines at `limits`. */
function countHistogram(box, { from, to, counts, limits, fill, label }) {
  const { svg, width, height } = canvas(box, 128, label);
  const shares = unpack(counts), top = 6, base = height - 22, x = linear(from, to, 4, width - 4);
  const y = linear(0, Math.max(...shares) || 1, base, top);
  draw("path", { d: outline(shares.map(y), 4, width - 4, base), fill: color(fill), opacity: 0.8 }, svg);
  for (const v of limits) draw("line", { x1: x(v), x2: x(v), y1: top, y2: base, stroke: color("ink"), "stroke-dasharray": "2 3" }, svg);
  bottomAxis(svg, from, to, x, base, width);
}

// --- 3. box plot: one box a channel

/** quantiles: packed, for each channel its least, 1 %, 25 %, 50 %, 75 %, 99 % and greatest value. */
function boxPlot(box, { quantiles, range, fill, label }) {
  const { svg, width, height } = canvas(box, 128, label);
  const flat = unpack(quantiles), count = flat.length / 7, { lo, hi } = quantiles;
  const top = 6, base = height - 8, left = 40, y = linear(lo, hi, base, top), pitch = (width - left) / count;
  const x = (i) => left + (i + 0.5) * pitch, of = (i, k) => flat[7 * i + k];
  if (range) {
    const [a, b] = [y(clamp(range[1], lo, hi)), y(clamp(range[0], lo, hi))];
    draw("rect", { x: left, y: a, width: width - left, height: Math.max(1, b - a), fill: color("band") }, svg);
  }
  leftAxis(svg, ticks(lo, hi, 4), y, left, width);
  const columnsOf = (k, m) => Array.from({ length: count }, (_, i) =>
    of(i, k) === null ? "" : `M${x(i).toFixed(1)} ${y(of(i, k)).toFixed(1)}V${(y(of(i, m)) - 0.5).toFixed(1)}`).join("");
  const wide = clamp(pitch * 0.6, 1, 8);
  draw("path", { d: columnsOf(0, 6), stroke: color(fill), "stroke-width": Math.min(1, wide), opacity: 0.5 }, svg);
  draw("path", { d: columnsOf(1, 5), stroke: color(fill), "stroke-width": Math.max(1, wide / 2.5), opacity: 0.5 }, svg);
  draw("path", { d: columnsOf(2, 4), stroke: color(fill), "stroke-width": wide }, svg);
  draw("path", { d: columnsOf(3, 3), stroke: color("card"), "stroke-width": wide }, svg);
}

// --- 4. heat map: a histogram a channel

/** largest: packed 0, the largest of all, and that of each channel; rows: digits, how full its bins from -largest are. */
function heatMap(box, { largest, rows, fill, label }) {
  const { svg, width, height } = canvas(box, 128, label);
  const [, most, ...reach] = unpack(largest), left = 40, y = linear(-most, most, height - 8, 6);
  const pitch = (width - left) / rows.length, wide = pitch > 3 ? pitch - 1 : pitch, paths = Array(10).fill("");
  rows.forEach((row, i) => {
    const tall = Math.max(0.5, (y(0) - y(reach[i])) * 2 / row.length);
    [...row].forEach((digit, k) => {
      const bottom = y(-reach[i]) - k * tall;
      if (digit !== "0") paths[+digit] += `M${(left + i * pitch).toFixed(1)} ${bottom.toFixed(1)}h${wide.toFixed(1)}v${(-tall).toFixed(1)}h${(-wide).toFixed(1)}z`;
    });
  });
  leftAxis(svg, ticks(-most, most, 4), y, left, width);
  paths.forEach((d, k) => d && draw("path", { d, fill: color(fill), opacity: 0.1 + 0.1 * k }, svg));
}

// --- 5. paired columns under a line: proven and seen widths

/** pairs: [{sum: [proven, seen], product: [proven, seen]}], widths in bits or null. */
function widthStrip(box, { pairs, labels, limit, tell, choose, label }) {
  const { svg, width, height } = canvas(box, 208, label);
  const left = 34, right = 4, top = 16, base = height - 24, y = linear(0, limit, base, top);
  const pitch = (width - left - right) / pairs.length, wide = clamp(pitch * 0.36, 1, 13), at = (i) => left + (i + 0.5) * pitch;
  leftAxis(svg, [0, 8, 16, 24, 32].filter((v) => v <= limit), y, left, width - right);
  const columns_ = { act: "", gray: "" };
  let seen = "";
  pairs.forEach(({ sum, product }, i) => [sum, product].forEach((one, k) => {
    if (!one) return;
    const x = sum && product ? at(i) + (k ? 0.5 : -wide - 0.5) : at(i) - wide / 2;
    columns_[k ? "gray" : "act"] += `M${x.toFixed(1)} ${base}V${y(one[0]).toFixed(1)}h${wide.toFixed(1)}V${base}z`;
    if (one[1] !== null) seen += `M${(x - 1).toFixed(1)} ${y(one[1]).toFixed(1)}h${(wide + 2).toFixed(1)}`;
  }));
  for (const [name, d] of Object.entries(columns_)) draw("path", { d, fill: color(name) }, svg);
  draw("path", { d: seen, stroke: color("ink"), "stroke-width": 1.8 }, svg);
  draw("line", { x1: left, x2: width - right, y1: y(limit), y2: y(limit), stroke: color("ink") }, svg);
  draw("text", { x: left, y: 8 }, svg, "bits");
  names(svg, labels, at, height - 7, width);
  columns(svg, pairs.length, at, pitch, height, tell, choose);
}

// --- 6. scatter with the front of what nothing beats

/** points: [{x, y, error, front, best, text}]; line: the demand, or null. */
function scatter(box, { points, line, xLabel, yLabel, label }) {
  const { svg, width, height } = canvas(box, 260, label);
  const left = 46, right = 16, top = 22, base = height - 24;
  const span = (values, pad) => { const lo = Math.min(...values), hi = Math.max(...values), more = Math.max((hi - lo) * pad, Math.abs(hi) * 0.005) || 1; return [lo - more, hi + more]; };
  const [xl, xh] = span(points.map((p) => p.x), 0.06), [yl, yh] = span([...points.map((p) => p.y), ...(line === null ? [] : [line])], 0.08);
  const x = linear(xl, xh, left, width - right), y = linear(yl, yh, base, top);
  leftAxis(svg, ticks(yl, yh, 5), y, left, width - right);
  bottomAxis(svg, xl, xh, x, base, width, xLabel);
  draw("text", { x: left, y: 9 }, svg, yLabel);
  if (line !== null) {
    draw("line", { class: "sel", x1: left, x2: width - right, y1: y(line), y2: y(line) }, svg);
    draw("text", { x: width - right, y: y(line) - 5, "text-anchor": "end" }, svg, "allowed");
  }
  const front = points.filter((p) => p.front).sort((a, b) => a.x - b.x);
  draw("path", { d: front.map((p, i) => (i ? `H${x(p.x)}V${y(p.y)}` : `M${x(p.x)} ${y(p.y)}`)).join(""), fill: "none", stroke: color("act"), "stroke-width": 1.5 }, svg);
  for (const p of [...points].sort((a, b) => a.front - b.front)) {
    if (p.best) draw("circle", { cx: x(p.x), cy: y(p.y), r: 8, fill: "none", stroke: color("ink"), "stroke-width": 1.25 }, svg);
    const dot = draw("circle", { cx: x(p.x), cy: y(p.y), r: p.front ? 4.5 : 3.5, fill: color(p.front ? "act" : "gray") }, svg);
    dot.addEventListener("mousemove", (event) => tip.show(event, p.text));
    dot.addEventListener("mouseleave", tip.hide);
  }
}
