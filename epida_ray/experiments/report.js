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
  for (const child of children.flat()) if (child !== null && child !== undefined) node.append(child);
  return node;
}

function svg(tag, attributes, text) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  return node;
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
  const back = h("button", { type: "button", onclick: () => { at -= size; draw(); } }, "back");
  const on = h("button", { type: "button", onclick: () => { at += size; draw(); } }, "on");
  const search = h("input", { type: "search", placeholder: "search all columns", "aria-label": "search", oninput: () => { query = search.value.toLowerCase(); filter(); } });
  const heads = columns.map((column, i) =>
    h("th", { class: column.number ? "number" : "" }, h("button", { type: "button", onclick: () => sort(i) }, column.name)));

  function filter() {
    shown = query ? order.filter((row) => (haystack[row] ??= columns.map((c) => c.value(row)).join("\n").toLowerCase()).includes(query)) : order;
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
  return h("div", { id }, h("div", { class: "bar" }, search, back, on, status),
    h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, heads)), body)));
}

const tip = h("div", { class: "tip", hidden: "" });
document.body.append(tip);

// Points on a canvas; shape 0 is a dot, 1 a triangle. The nearest point's text shows under the pointer.
function plot(id, points, { width = 460, height = 380, x = null, y = null } = {}) {
  const ratio = window.devicePixelRatio || 1;
  const canvas = h("canvas", { id, width: width * ratio, height: height * ratio, style: `width:${width}px`, role: "img" });
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
  canvas.addEventListener("mousemove", (event) => {
    const box = canvas.getBoundingClientRect(), scale = width / box.width;
    const mx = (event.clientX - box.left) * scale, my = (event.clientY - box.top) * scale;
    let best = null, least = 100;
    for (const p of points) {
      const d = (px(p.x) - mx) ** 2 + (py(p.y) - my) ** 2;
      if (d < least) { least = d; best = p; }
    }
    tip.hidden = !best;
    if (best) { tip.textContent = best.text; tip.style.left = `${Math.min(event.clientX + 12, innerWidth - 370)}px`; tip.style.top = `${event.clientY + 12}px`; }
  });
  canvas.addEventListener("mouseleave", () => { tip.hidden = true; });
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

function lines(title, series) {
  const width = 360, height = 200, pad = 40;
  const all = series.flatMap(([, points]) => points);
  const bounds = (key) => [Math.min(...all.map((p) => p[key])), Math.max(...all.map((p) => p[key]))];
  const [x0, x1] = bounds(0), [y0, y1] = bounds(1);
  const px = (v) => pad + ((v - x0) / (x1 - x0 || 1)) * (width - pad - 12), py = (v) => height - 26 - ((v - y0) / (y1 - y0 || 1)) * (height - 46);
  const chart = svg("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, width, height, role: "img" });
  for (const v of [y0, (y0 + y1) / 2, y1]) {
    chart.append(svg("line", { x1: pad, x2: width - 12, y1: py(v), y2: py(v), stroke: color("--line") }));
    chart.append(svg("text", { x: pad - 4, y: py(v) + 4, "text-anchor": "end" }, Math.abs(v) >= 1000 ? v.toFixed(0) : String(Number(v.toFixed(3)))));
  }
  chart.append(svg("text", { x: px(x0), y: height - 8 }, String(x0)), svg("text", { x: px(x1), y: height - 8, "text-anchor": "end" }, `round ${x1}`));
  series.forEach(([, points], i) => {
    chart.append(svg("polyline", { points: points.map((p) => `${px(p[0])},${py(p[1])}`).join(" "), fill: "none", stroke: COLORS[i % COLORS.length], "stroke-width": 2 }));
    for (const p of points) chart.append(svg("circle", { cx: px(p[0]), cy: py(p[1]), r: 2.5, fill: COLORS[i % COLORS.length] }));
  });
  return h("figure", { style: `max-width:${width}px` }, h("h3", {}, title), chart, legend(...series.map(([name], i) => [name, COLORS[i % COLORS.length]])));
}

document.title = data.title;
page.append(h("h1", {}, data.title), h("div", { class: "facts" }, data.facts.map(([name, value]) => h("div", {}, h("b", {}, value), h("span", {}, name)))));

if (data.summary) {
  const drawing = new DOMParser().parseFromString(data.plot, "image/svg+xml").documentElement;
  section("Result", "result", h("div", { class: "plot" }, document.importNode(drawing, true)), markdown(data.summary));
  const { head, body } = data.results;
  const numeric = head.map((_, c) => body.every((row) => row[c] === "" || !Number.isNaN(Number(row[c]))) && body.some((row) => row[c] !== ""));
  const filled = head.map((name, c) => ({ name, c })).filter(({ c }) => body.some((row) => row[c] !== ""));
  section("Trials", "trials", bigTable("trials-table", filled.map(({ name, c }) => ({
    name, number: numeric[c], value: (row) => (numeric[c] && body[row][c] !== "" ? Number(body[row][c]) : body[row][c]),
  })), body.length));
}

if (data.rounds.length) {
  const names = [...new Set(data.rounds.flatMap((row) => Object.keys(row)))].filter((name) => name !== "round");
  const charts = [["Losses", /loss/], ["Dev scores", /f1|accuracy/], ["Scores of the kept", /s_div|s_qua|flip/], ["Rows", /kept|rejected|short/], ["Seconds", /seconds/]];
  const used = new Set();
  const figures = charts.map(([title, pattern]) => {
    const mine = names.filter((name) => pattern.test(name) && !used.has(name));
    mine.forEach((name) => used.add(name));
    const series = mine.map((name) => [name, data.rounds.flatMap((row, i) => (name in row ? [[row.round ?? i, row[name]]] : []))]);
    return series.length ? lines(title, series) : null;
  });
  section("Rounds", "rounds", h("div", { class: "side" }, figures));
}

if (data.scatter) {
  const s = data.scatter, kept = color("--kept"), dropped = color("--dropped");
  const points = s.s_div.map((x, i) => ({ x, y: s.s_qua[i], color: s.kept[i] ? kept : dropped, shape: s.kept[i] ? 1 : 0, text: s.text[i], alpha: s.kept[i] ? 0.75 : 0.3 }));
  points.sort((a, b) => a.shape - b.shape);
  const unit = [...s.s_div, ...s.s_qua].every((v) => v >= 0 && v <= 1) ? [0, 1] : null;
  section("Diversity and quality", "scatter",
    h("p", {}, s.with_dropped ? `Every point is a candidate${s.normalized ? "; both scores are normalised within its sample" : ""}.` : "Only what was kept is here; run with --candidates to see what was dropped."),
    legend(["kept", kept], ...(s.with_dropped ? [["dropped", dropped]] : [])),
    plot("scatter-plot", points, { width: 620, height: 460, x: { name: "s_div, diversity", range: unit }, y: { name: "s_qua, quality", range: unit } }));
}

if (data.map) {
  const m = data.map;
  if (m.missing) section("Hidden states", "map", h("p", {}, m.missing));
  else {
    const at = (i, shape) => ({ x: m.x[i], y: m.y[i], text: `${m.labels[m.class[i]]}: ${m.text[i]}`, color: COLORS[m.class[i] % COLORS.length], shape, size: shape ? 3 : 3.6, alpha: shape ? 0.55 : 0.95 });
    section("Hidden states", "map",
      h("p", {}, "t-SNE of what the classifier makes of originals (dots) and of rewrites (triangles); colours are classes. Only nearness means something."),
      legend(...m.labels.map((name, i) => [name, COLORS[i % COLORS.length]])),
      h("div", { class: "side" }, m.panels.map(([name, rows], n) =>
        h("figure", {}, plot(`map-${n}`, [...rows.map((i) => at(i, 1)), ...m.originals.map((i) => at(i, 0))], { width: m.panels.length > 1 ? 360 : 560, height: m.panels.length > 1 ? 330 : 460 }),
          h("figcaption", {}, `originals and ${name}`)))));
  }
}

if (data.examples && data.examples.length) {
  section("Examples", "examples", h("p", {}, "New words are marked, words that were left out are struck; a tick says that the rewrite was kept."),
    data.examples.map((example) => h("div", { class: "scroll" }, h("h3", {}, example.label), h("table", {},
      h("thead", {}, h("tr", {}, ["", "text", "operation"].map((name) => h("th", {}, name)), ["s_div", "s_qua", "s_tot"].map((name) => h("th", { class: "number" }, name)))),
      h("tbody", {},
        h("tr", { class: "original" }, h("td"), h("td", { class: "text" }, example.source), h("td", {}, "original"), h("td"), h("td"), h("td")),
        example.candidates.map((c) => h("tr", {},
          h("td", { class: "tick" }, c.kept ? "✓" : ""),
          h("td", { class: "text" }, c.text.map(([piece, changed]) => (changed ? h(changed > 1 ? "del" : "mark", {}, piece) : piece))),
          h("td", {}, c.operation),
          c.scores.map((v) => h("td", { class: "number" }, v.toFixed(2))))))))));
}

if (data.stages.length) {
  const most = Math.max(...data.stages.map(([, seconds]) => seconds), 1e-9), total = data.stages.reduce((sum, [, seconds]) => sum + seconds, 0);
  section("Time", "stages", h("p", {}, "Seconds of work in each stage, summed over all workers."),
    h("div", { class: "meter" }, data.stages.flatMap(([name, seconds]) => [h("span", {}, name), h("div", { style: `width:${(100 * seconds) / most}%` }), h("span", {}, `${seconds.toFixed(1)} s, ${((100 * seconds) / (total || 1)).toFixed(0)}%`)])));
}

if (data.kept) {
  const k = data.kept, name = (column) => (row) => k[`${column}_names`][k[column][row]];
  section("Kept samples", "kept",
    h("p", {}, k.total > k.text.length ? `${number(k.text.length)} of ${number(k.total)} rows, evenly from all files.` : `${number(k.total)} rows.`),
    bigTable("kept-table", [
      { name: "label", value: name("label") },
      { name: "text", value: (row) => k.text[row], text: true },
      { name: "original", value: name("source_text"), text: true },
      { name: "operation", value: name("operation") },
      { name: "round", value: (row) => k.round[row], number: true },
      { name: "rank", value: (row) => k.rank[row], number: true },
      { name: "s_div", value: (row) => k.s_div[row], number: true },
      { name: "s_qua", value: (row) => k.s_qua[row], number: true },
      { name: "s_tot", value: (row) => k.s_tot[row], number: true },
      { name: "id", value: name("sample_id") },
    ], k.text.length));
}

if (data.rejected.total || data.rejected.reasons.length) {
  const r = data.rejected;
  section("Set aside", "rejected", h("p", {}, `${number(r.total)} rows.`),
    h("table", { id: "reasons" }, h("thead", {}, h("tr", {}, h("th", {}, "reason"), h("th", { class: "number" }, "rows"))),
      h("tbody", {}, r.reasons.map(([reason, count]) => h("tr", {}, h("td", { class: "text" }, reason), h("td", { class: "number" }, number(count)))))),
    r.rows.length ? bigTable("rejected-table", ["id", "stage", "reason", "text"].map((title, c) => ({ name: title, value: (row) => r.rows[row][c], text: c > 1 })), r.rows.length, 20) : null);
}

section("How it was made", "made", h("h3", {}, "Command"), h("pre", {}, data.command),
  h("h3", {}, "Options"), h("pre", {}, Object.entries(data.asked).map(([name, value]) => `${name}: ${typeof value === "object" ? JSON.stringify(value) : value}`).join("\n")),
  h("h3", {}, "Versions"), h("pre", {}, Object.entries(data.versions).map(([name, version]) => `${name} ${version}`).join("\n")));
document.body.dataset.ready = "yes";
