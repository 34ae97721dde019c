// What only pages of `epida compare`, `epida tune` and `epida check` show.
const signed = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(3)}`;
const between = (row) => (row.low == null ? signed(row.mean) : `${signed(row.mean)} [${signed(row.low)}, ${signed(row.high)}]`);
const MACRO_F1 = "Macro-F1 is the mean of the classes' F1 scores, so that rare classes count as much as common ones; 1 is perfect.";

function niceTicks(low, high, count = 4) {
  const raw = (high - low) / count || 1, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= raw);
  const ticks = [];
  for (let v = Math.ceil(low / step) * step; v <= high + 1e-9; v += step) ticks.push(Number(v.toFixed(6)) || 0);
  return ticks;
}

// A table with one column that is a plot: every row has its marks on the same axis. Positions are percentages, so that it fits any width.
function stripTable(id, { range: [low, high], axis, heads, rows, label }) {
  const at = (value) => `${(4 + (92 * (value - low)) / (high - low || 1)).toFixed(2)}%`;
  const grid = () => axis.map((v) => svg("line", { x1: at(v), x2: at(v), y1: 0, y2: "100%", stroke: color("--line"), "stroke-width": v === 0 ? 2 : 1 }));
  const strip = (marks) => { const node = svg("svg", { class: "strip", "aria-hidden": "true" }); node.append(...grid(), ...marks(at)); return node; };
  const scale = svg("svg", { class: "scale", role: "img", "aria-label": label });
  scale.append(...axis.map((v) => svg("text", { x: at(v), y: 14, "text-anchor": "middle" }, String(v))));
  const [first, ...others] = heads;
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, h("table", { id, class: "strips" },
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, first), h("th", { scope: "col", class: "plotted" }, label, scale), others.map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, rows.map((row) => h("tr", row.marked ? { class: "marked" } : {}, h("th", { scope: "row" }, row.name), h("td", { class: "plotted" }, strip(row.marks)), row.cells.map((cell) => h("td", {}, cell)))))));
}

function intervalMarks({ mean, low, high }, good, bad) {
  const stroke = low > 0 ? good : high < 0 ? bad : color("--soft");
  return (at) => (mean == null ? [] : [
    ...(low == null ? [] : [svg("line", { class: "interval", x1: at(low), x2: at(high), y1: "50%", y2: "50%", stroke, "stroke-width": 3 })]),
    svg("circle", { cx: at(mean), cy: "50%", r: 5, fill: stroke }),
  ]);
}

// Differences with their intervals around 0.
function forest(id, label, heads, rows) {
  const values = rows.flatMap(({ mean, low, high }) => [mean, low, high]).filter((v) => v != null);
  const low = Math.min(0, ...values), high = Math.max(0, ...values), space = (high - low) * 0.03 || 0.01;
  return stripTable(id, { range: [low - space, high + space], axis: [...new Set([0, ...niceTicks(low, high)])], label, heads,
    rows: rows.map((row) => ({ ...row, marks: intervalMarks(row, color("--kept"), color("--dropped")) })) });
}

const span = (seconds) => (seconds == null ? "" : seconds < 10 ? `${seconds.toFixed(1)} s` : seconds < 90 ? `${seconds.toFixed(0)} s` : `${(seconds / 60).toFixed(0)} min`);

function showRecipes({ simplest, recommended, rows, commands }) {
  section("Recipes", "recipes",
    h("p", {}, `A recipe is a way to train, and the first one is the simplest. Dots are differences in macro-F1 to ${simplest}, right of 0 is better; bars are 95% confidence intervals. Where a bar crosses 0, chance may explain the difference. ${MACRO_F1}`),
    forest("forest", `macro-F1 against ${simplest}`, ["recipe", "difference", "macro-F1", "folds", "to train", "texts/s", "outcome"], rows.map((row) => ({
      name: row.recipe, marked: row.recipe === recommended, mean: row.difference, low: row.low, high: row.high,
      cells: [row.difference == null ? "" : between({ mean: row.difference, low: row.low, high: row.high }), row.macro_f1 == null ? "" : row.macro_f1.toFixed(3), String(row.folds), span(row.train_seconds), row.texts_per_second == null ? "" : Math.round(row.texts_per_second).toLocaleString("en"), row.outcome],
    }))),
    h("p", {}, "A fold is one part of the rows: the recipe learned from the other parts and was tested on it. Times to train and texts/s, the texts that are labelled in a second, are measured on one core."),
    commands.length ? [h("h3", {}, commands.length > 1 ? "Commands that train it" : "Command that trains it"), h("pre", {}, commands.join("\n"))] : null);
}

function showHalving({ events, stopped }, { rows }) {
  const why = { time: "It ended because the time was up.", clear: "It ended because more folds would not change the recommendation.", repetitions: "It ended because all repetitions were done." };
  const most = Math.max(1, ...rows.map((row) => row.folds));
  section("When recipes stopped", "halving",
    h("p", {}, `Recipes are compared again and again while folds are added, and those that are clearly behind stop early, so that the time goes to the others. A dot is a comparison with the recipe that led at that time; a cross is where a recipe stopped. ${why[stopped] || ""}`),
    stripTable("halving-table", { range: [0, most], axis: niceTicks(0, most).filter(Number.isInteger), label: "folds that were done", heads: ["recipe", "last comparison with the leading recipe", "outcome"],
      rows: rows.map((row) => {
        const mine = events.filter((event) => event.recipe === row.recipe && event.leader != null), last = mine[mine.length - 1];
        const early = (row !== rows[0] && row.dropped_after != null) || row.paused || row.failure, stroke = early ? color("--dropped") : color("--kept");
        return {
          name: row.recipe, marked: row.outcome === "recommended",
          marks: (at) => [
            svg("line", { x1: at(0), x2: at(row.folds), y1: "50%", y2: "50%", stroke, "stroke-width": 3 }),
            ...mine.filter((event) => event.folds <= row.folds).map((event) => {
              const dot = svg("circle", { cx: at(event.folds), cy: "50%", r: 4, fill: stroke });
              dot.append(svg("title", {}, `after ${event.folds} folds${event.seconds == null ? "" : ` and ${span(event.seconds)}`}: ${between(event)} against ${event.leader}`));
              return dot;
            }),
            ...(early ? [svg("text", { class: "stop", x: at(row.folds), y: "50%", dy: "0.35em", "text-anchor": "middle" }, "✕")] : []),
          ],
          cells: [last ? `${between(last)} against ${last.leader}` : "it led", row.outcome],
        };
      }) }));
}

function showCurve({ rows, says }) {
  if (!says) return;
  section("Would more labels help?", "curve", h("p", { class: "plain" }, says),
    rows.length ? h("div", { class: "side" },
      lines("Macro-F1 by number of labels", [["macro-F1 of the recommended recipe", rows.map((row) => [row.labels, row.macro_f1])]], { unit: "labels" }),
      h("div", { class: "scroll" }, h("table", { id: "curve-table" }, h("thead", {}, h("tr", {}, ["labels", "macro-F1", "gain over the row above"].map((name) => h("th", { scope: "col" }, name)))),
        h("tbody", {}, rows.map((row) => h("tr", {}, [row.labels.toLocaleString("en"), row.macro_f1.toFixed(3), row.gain == null ? "" : between({ mean: row.gain, low: row.low, high: row.high })].map((cell) => h("td", {}, cell)))))))) : null);
}

function showSearch({ gains, options, head, body }) {
  section("How much of the gain is real", "gains",
    h("p", {}, `The search reports the best of many tries, and the best of many is better than it deserves. So it was trained again with five seeds and measured on rows that the search never saw; the bar is a 95% confidence interval. ${MACRO_F1}`),
    forest("forest", "macro-F1 against training without rewrites", ["measured", "difference"], gains.map((row) => ({ ...row, marked: row.low != null, cells: [between(row)] }))));
  section("What was found", "found", h("pre", {}, Object.entries(options).map(([name, value]) => `${name}: ${typeof value === "object" ? JSON.stringify(value).replaceAll("},{", "},\n  {") : value}`).join("\n")));
  const numeric = head.map((_, c) => body.some((row) => row[c] !== "") && body.every((row) => row[c] === "" || !Number.isNaN(Number(row[c]))));
  const searched = head.map((_, c) => c).filter((c) => c > 1 && numeric[c] && new Set(body.map((row) => row[c])).size > 2);
  const frame = h("div");
  const draw = (c) => frame.replaceChildren(plot("search-plot", body.filter((row) => row[c] !== "").map((row) => ({ x: Number(row[c]), y: Number(row[0]), size: 5, color: color(Number(row[1]) === most ? "--kept" : "--dropped"), text: `${head[c]} ${row[c]}: ${Number(row[0]).toFixed(3)} after ${row[1]} folds` })), { width: 560, height: 340, x: { name: head[c] }, y: { name: "macro-F1" } }));
  const most = Math.max(...body.map((row) => Number(row[1])));
  const choose = h("select", { "aria-label": "option on the horizontal axis", onchange: () => draw(Number(choose.value)) }, searched.map((c) => h("option", { value: c }, head[c])));
  if (searched.length) draw(searched[0]);
  section("Points that were tried", "points", h("p", {}, "A point is a set of options. Those that were behind stopped after one or two folds."),
    searched.length ? [h("div", { class: "bar" }, choose), legend(["tested in all folds", color("--kept")], ["stopped early", color("--dropped")]), frame] : null,
    bigTable("points-table", head.map((name, c) => ({ name: name === "score" ? "macro-F1" : name, number: numeric[c], value: (row) => (numeric[c] && body[row][c] !== "" ? Number(body[row][c]) : body[row][c]) })), body.length, 25));
}

function showFindings(findings) {
  if (!findings.length) return;
  section("Data problems", "findings",
    h("p", {}, "A problem makes scores or the model wrong; a warning is worth a look; a note is good to know."),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "all findings" }, h("table", { id: "findings-table" },
      h("thead", {}, h("tr", {}, ["level", "what", "count", "what to do"].map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, findings.map((one) => h("tr", {}, h("td", {}, h("b", { class: one.level }, one.level)), h("td", { class: "text" }, one.total ? h("a", { href: `#finding-${one.name}` }, one.what) : one.what), h("td", { class: "number" }, number(one.count)), h("td", { class: "text" }, one.advice)))))),
    findings.filter((one) => one.total).map((one, n) => h("section", { id: `finding-${one.name}` }, h("h3", {}, one.what),
      one.total > one.table.body.length ? h("p", {}, `The first ${number(one.table.body.length)} of ${number(one.total)}; ${one.name}.csv has all.`) : null,
      bigTable(`rows-${n}`, one.table.head.map((name, c) => ({ name, text: one.table.texts[c], number: typeof one.table.body[0][c] === "number", filter: name === "label", value: (row) => one.table.body[row][c] })), one.table.body.length, 10))));
}

function showCompared() {
  if (data.recipes) showRecipes(data.recipes);
  if (data.search) showSearch(data.search);
  if (data.curve) showCurve(data.curve);
  if (data.halving) showHalving(data.halving, data.recipes);
  if (data.findings) showFindings(data.findings);
}
