"use strict";
// Every text goes through text nodes: nothing of the data is ever parsed as HTML.
const data = JSON.parse(document.getElementById("data").textContent);
const page = document.getElementById("page");
const COLORS = ["#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#b07aa1", "#76b7b2", "#edc948", "#9c755f", "#ff9da7", "#8a8f98"];
const SVG = "http://www.w3.org/2000/svg";

function h(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value);
  }
  for (const child of children.flat(Infinity)) if (child !== null && child !== undefined) node.append(child);
  return node;
}

function svg(tag, attributes, text) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

// A sentence in which what stands between backticks is a command.
function sentence(text) {
  return h("p", {}, text.split("`").map((piece, i) => (i % 2 ? h("code", {}, piece) : piece)));
}

function section(title, id, ...children) {
  page.append(h("section", { id }, h("h2", {}, title), ...children));
}

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const number = (value) => (Number.isInteger(value) ? value.toLocaleString("en") : value.toFixed(3));

// A table that shows one page of its rows: 100,000 of them sort and filter without 100,000 nodes.
function bigTable(id, columns, count, size = 50) {
  let order = Uint32Array.from({ length: count }, (_, i) => i);
  let sorted = -1, down = false, query = "", at = 0, shown = order;
  const haystack = new Array(count);
  const body = h("tbody");
  const status = h("span", { class: "status" });
  const back = h("button", { type: "button", onclick: () => { at -= size; draw(); } }, "Previous");
  const on = h("button", { type: "button", onclick: () => { at += size; draw(); } }, "Next");
  const chosen = new Map();
  const filters = columns.flatMap((column, i) => {
    if (!column.filter) return [];
    const values = [...new Set(Array.from({ length: count }, (_, row) => String(column.value(row))))].sort().slice(0, 200);
    if (values.length < 2) return [];
    const select = h("select", { "aria-label": `only this ${column.name}`, onchange: () => { select.value ? chosen.set(i, select.value) : chosen.delete(i); filter(); } },
      h("option", { value: "" }, `every ${column.name}`), values.map((value) => h("option", { value }, value)));
    return [select];
  });
  const search = h("input", { type: "search", placeholder: "search all columns", "aria-label": "search", oninput: () => { query = search.value.toLowerCase(); filter(); } });
  const heads = columns.map((column, i) =>
    h("th", { class: column.number ? "number" : "" }, h("button", { type: "button", onclick: () => sort(i) }, column.name)));

  function filter() {
    shown = order;
    for (const [i, value] of chosen) shown = shown.filter((row) => String(columns[i].value(row)) === value);
    if (query) shown = shown.filter((row) => (haystack[row] ??= columns.map((c) => c.value(row)).join("\n").toLowerCase()).includes(query));
    at = 0;
    draw();
  }
  function sort(i) {
    down = sorted === i ? !down : Boolean(columns[i].number);
    sorted = i;
    const { value } = columns[i];
    const keys = Array.from({ length: count }, (_, row) => value(row));
    const compare = columns[i].number ? (a, b) => keys[a] - keys[b] : (a, b) => (keys[a] < keys[b] ? -1 : keys[a] > keys[b] ? 1 : 0);
    const missing = (row) => (columns[i].number && keys[row] === "" ? 1 : 0);
    order = Uint32Array.from({ length: count }, (_, row) => row).sort((a, b) => missing(a) - missing(b) || (down ? compare(b, a) : compare(a, b)) || a - b);
    heads.forEach((head, n) => {
      head.setAttribute("aria-sort", n === i ? (down ? "descending" : "ascending") : "none");
      head.firstChild.textContent = columns[n].name + (n === i ? (down ? " ↓" : " ↑") : "");
    });
    filter();
  }
  function draw() {
    body.replaceChildren(...Array.from(shown.slice(at, at + size), (row) =>
      h("tr", {}, columns.map((c) => {
        const value = c.value(row);
        const cell = h("td", { class: c.number ? "number" : c.text ? "text" : "" });
        cell.textContent = c.number && value !== "" && !Number.isInteger(value) ? value.toFixed(3) : String(value);
        return cell;
      }))));
    status.textContent = shown.length ? `${number(at + 1)} to ${number(Math.min(at + size, shown.length))} of ${number(shown.length)}` : "nothing found";
    back.disabled = at === 0;
    on.disabled = at + size >= shown.length;
  }
  draw();
  return h("div", { id }, count > 8 ? h("div", { class: "bar" }, search, filters, back, on, status) : null,
    h("div", { class: "scroll", tabindex: "0" }, h("table", {}, h("thead", {}, h("tr", {}, heads)), body)));
}

const tip = h("div", { class: "tip", role: "status", "aria-live": "polite", hidden: "" });
const ring = h("div", { class: "ring", hidden: "" });
document.body.append(tip, ring);

// Points on a canvas; shape 0 is a dot, 1 a triangle. The nearest point's text shows under the pointer; arrow keys go through the points from left to right.
function plot(id, points, { width = 460, height = 380, x = null, y = null } = {}) {
  const ratio = window.devicePixelRatio || 1;
  const fit = Math.min(1, Math.max(280, document.documentElement.clientWidth - 40) / width);  // drawn small, not scaled down: letters stay legible
  width *= fit;
  height *= fit;
  const canvas = h("canvas", { id, width: width * ratio, height: height * ratio, style: `width:${width}px`, role: "application", tabindex: "0", "aria-label": `${points.length} points; the arrow keys go from one to the next` });
  const context = canvas.getContext("2d");
  const pad = x ? 54 : 14;
  const range = (key, fixed) => fixed || points.reduce(([a, b], p) => [Math.min(a, p[key]), Math.max(b, p[key])], [Infinity, -Infinity]);
  const [x0, x1] = range("x", x && x.range), [y0, y1] = range("y", y && y.range);
  const px = (v) => pad + ((v - x0) / (x1 - x0 || 1)) * (width - 2 * pad);
  const py = (v) => height - pad - ((v - y0) / (y1 - y0 || 1)) * (height - 2 * pad);
  context.scale(ratio, ratio);
  if (x) {
    context.strokeStyle = color("--line");
    context.fillStyle = color("--soft");
    context.font = "12px system-ui, sans-serif";
    context.textAlign = "center";
    for (let i = 0; i <= 4; i++) {
      const vx = x0 + ((x1 - x0) * i) / 4, vy = y0 + ((y1 - y0) * i) / 4;
      context.beginPath();
      context.moveTo(px(vx), py(y0)); context.lineTo(px(vx), py(y1));
      context.moveTo(px(x0), py(vy)); context.lineTo(px(x1), py(vy));
      context.stroke();
      context.fillText(vx.toFixed(2), px(vx), height - pad + 15);
      context.fillText(vy.toFixed(2), pad - 17, py(vy) + 4);
    }
    context.fillText(x.name, width / 2, height - 12);
    context.save();
    context.translate(14, height / 2); context.rotate(-Math.PI / 2);
    context.fillText(y.name, 0, 0);
    context.restore();
  }
  for (const p of points) {
    const cx = px(p.x), cy = py(p.y), r = p.size || 2.4;
    context.globalAlpha = p.alpha || 0.6;
    context.fillStyle = p.color;
    context.beginPath();
    if (p.shape) { context.moveTo(cx, cy - r * 1.4); context.lineTo(cx + r * 1.3, cy + r); context.lineTo(cx - r * 1.3, cy + r); }
    else context.arc(cx, cy, r, 0, 7);
    context.fill();
  }
  const say = (text, left, top) => {
    tip.hidden = false;
    tip.textContent = text;
    tip.style.left = `${Math.min(left + 12, innerWidth - 370)}px`;
    tip.style.top = `${top + 12}px`;
  };
  const hush = () => { tip.hidden = ring.hidden = true; };
  let sorted = null, at = -1;
  canvas.addEventListener("keydown", (event) => {
    const to = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: points.length - 1 }[event.key];
    if (event.key === "Escape") hush();
    if (to === undefined || !points.length) return;
    event.preventDefault();
    sorted ??= [...points].sort((a, b) => a.x - b.x || a.y - b.y);
    at = Math.min(Math.max(to, 0), points.length - 1);
    const p = sorted[at], box = canvas.getBoundingClientRect(), scale = box.width / width;
    const left = box.left + px(p.x) * scale, top = box.top + py(p.y) * scale;
    ring.hidden = false;
    ring.style.left = `${left}px`;
    ring.style.top = `${top}px`;
    say(p.text, left, top);
  });
  canvas.addEventListener("blur", hush);
  canvas.addEventListener("mousemove", (event) => {
    const box = canvas.getBoundingClientRect(), scale = width / box.width;
    const mx = (event.clientX - box.left) * scale, my = (event.clientY - box.top) * scale;
    let best = null, least = 100;
    for (const p of points) {
      const d = (px(p.x) - mx) ** 2 + (py(p.y) - my) ** 2;
      if (d < least) { least = d; best = p; }
    }
    hush();
    if (best) say(best.text, event.clientX, event.clientY);
  });
  canvas.addEventListener("mouseleave", hush);
  canvas.dataset.points = points.length;
  return canvas;
}

// Of Markdown what the tables of experiments have: headings, tables, lists, paragraphs.
function markdown(text) {
  const out = [];
  for (const block of text.split(/\n\n+/)) {
    const rows = block.trim().split("\n");
    if (rows[0].startsWith("# ")) continue;
    if (rows[0].startsWith("## ")) out.push(h("h3", {}, rows[0].slice(3)));
    else if (rows[0].startsWith("|")) {
      const cells = rows.map((row) => row.slice(2, -2).split(" | "));
      out.push(h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, cells[0].map((c) => h("th", {}, c)))),
        h("tbody", {}, cells.slice(2).map((row) => h("tr", {}, row.map((c) => h("td", {}, c))))))));
    } else if (rows[0].startsWith("- ")) out.push(h("ul", {}, rows.map((row) => h("li", {}, row.slice(2)))));
    else out.push(h("p", {}, block));
  }
  return out;
}

function legend(...entries) {
  return h("div", { class: "legend" }, entries.map(([name, fill]) => h("span", {}, h("i", { style: `background:${fill}` }), name)));
}

// An axis label of at most five characters.
function short(value) {
  const size = Math.abs(value);
  return size >= 1000 ? `${(value / 1000).toFixed(size < 10_000 ? 1 : 0)}k` : String(Number(value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 3)));
}

function lines(title, series, { marked = null, unit = "round" } = {}) {
  const width = 360, height = 210, pad = 46;
  const all = series.flatMap(([, points]) => points);
  const bounds = (key) => [Math.min(...all.map((p) => p[key])), Math.max(...all.map((p) => p[key]))];
  const [x0, x1] = bounds(0), [y0, y1] = bounds(1);
  const px = (v) => pad + ((v - x0) / (x1 - x0 || 1)) * (width - pad - 12), py = (v) => height - 26 - ((v - y0) / (y1 - y0 || 1)) * (height - 50);
  const chart = svg("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": title });
  for (const v of [y0, (y0 + y1) / 2, y1]) {
    chart.append(svg("line", { x1: pad, x2: width - 12, y1: py(v), y2: py(v), stroke: color("--line") }));
    chart.append(svg("text", { x: pad - 4, y: py(v) + 4, "text-anchor": "end" }, short(v)));
  }
  let free = 0;
  for (const v of [...new Set(all.map((p) => p[0]))].sort((a, b) => a - b)) {
    if (v === x1) chart.append(svg("text", { x: px(v), y: height - 8, "text-anchor": x1 > x0 ? "end" : "start" }, `${unit} ${number(v)}`));
    else if (px(v) >= free && px(v) < width - 110) {
      chart.append(svg("text", { x: px(v), y: height - 8, "text-anchor": "middle" }, number(v)));
      free = px(v) + 36;
    }
  }
  if (marked !== null && marked >= x0 && marked <= x1) {
    chart.append(svg("line", { class: "chosen", x1: px(marked), x2: px(marked), y1: 16, y2: height - 26, stroke: color("--kept"), "stroke-dasharray": "4 3" }));
    chart.append(svg("text", { x: px(marked), y: 12, "text-anchor": marked > (x0 + x1) / 2 ? "end" : "start" }, `chosen: round ${marked}`));
  }
  series.forEach(([, points], i) => {
    chart.append(svg("polyline", { points: points.map((p) => `${px(p[0])},${py(p[1])}`).join(" "), fill: "none", stroke: COLORS[i % COLORS.length], "stroke-width": 2 }));
    for (const p of points) chart.append(svg("circle", { cx: px(p[0]), cy: py(p[1]), r: 2.5, fill: COLORS[i % COLORS.length] }));
  });
  return h("figure", { style: `max-width:${width}px` }, h("h3", {}, title), chart, legend(...series.map(([name], i) => [name, COLORS[i % COLORS.length]])));
}

function confusion(labels, table) {
  const most = Math.max(1, ...table.flat());
  return h("div", { class: "scroll" }, h("table", { id: "confusion" },
    h("caption", {}, "Rows are the true classes, columns the predicted ones."),
    h("thead", {}, h("tr", {}, h("td"), labels.map((label) => h("th", { class: "number", scope: "col" }, label)))),
    h("tbody", {}, table.map((row, i) => h("tr", {}, h("th", { scope: "row" }, labels[i]), row.map((count, j) =>
      h("td", { class: i === j ? "number hit" : "number miss", style: `--share:${(count / most).toFixed(3)}` }, count ? number(count) : "·")))))));
}

function reliabilityDiagram(bins) {
  const width = 300, height = 300, pad = 40, total = bins.reduce((sum, bin) => sum + bin.rows, 0);
  const px = (v) => pad + v * (width - pad - 12), py = (v) => height - pad - v * (height - pad - 12);
  const chart = svg("svg", { class: "chart", id: "reliability", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": "Reliability diagram" });
  for (const v of [0, 0.25, 0.5, 0.75, 1]) {
    chart.append(svg("line", { x1: px(0), x2: px(1), y1: py(v), y2: py(v), stroke: color("--line") }), svg("text", { x: pad - 4, y: py(v) + 4, "text-anchor": "end" }, String(v)), svg("text", { x: px(v), y: height - pad + 14, "text-anchor": "middle" }, String(v)));
  }
  chart.append(svg("line", { x1: px(0), y1: py(0), x2: px(1), y2: py(1), stroke: color("--soft"), "stroke-dasharray": "3 3" }));
  for (const bin of bins) {
    const dot = svg("circle", { cx: px(bin.confidence), cy: py(bin.accuracy), r: 3 + 12 * Math.sqrt(bin.rows / total), fill: COLORS[0], "fill-opacity": 0.7 });
    dot.append(svg("title", {}, `${number(bin.rows)} rows: confidence ${bin.confidence.toFixed(2)}, accuracy ${bin.accuracy.toFixed(2)}`));
    chart.append(dot);
  }
  chart.append(svg("text", { x: width / 2, y: height - 8, "text-anchor": "middle" }, "confidence"), svg("text", { x: 12, y: height / 2, transform: `rotate(-90 12 ${height / 2})`, "text-anchor": "middle" }, "accuracy"));
  return chart;
}
