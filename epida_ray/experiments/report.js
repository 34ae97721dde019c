document.title = data.title;
const [done, outcome, next] = data.verdict || [];  // what came out is said first
page.append(h("h1", {}, data.title), h("div", { id: "verdict" }, [outcome, done, next].filter(Boolean).map(sentence)), h("div", { class: "facts" }, data.facts.map(([name, value]) => h("div", {}, h("b", {}, value), h("span", {}, name)))));

showCompared();

if (data.summary) {
  section("Result", "result", h("div", { class: "plot" }, h("img", { src: data.plot, alt: "The results as a plot" })), markdown(data.summary));
  const { head, body } = data.results;
  const numeric = head.map((_, c) => body.every((row) => row[c] === "" || !Number.isNaN(Number(row[c]))) && body.some((row) => row[c] !== ""));
  const filled = head.map((name, c) => ({ name, c })).filter(({ c }) => body.some((row) => row[c] !== ""));
  section("Trials", "trials", bigTable("trials-table", filled.map(({ name, c }) => ({
    name, number: numeric[c], value: (row) => (numeric[c] && body[row][c] !== "" ? Number(body[row][c]) : body[row][c]),
  })), body.length));
}

if (data.test && data.test.per_class) {
  const t = data.test, classes = Object.entries(t.per_class);
  section("Test", "test", h("p", {}, `${number(t.rows)} rows that the model has not learned from: macro-F1 ${t.macro_f1.toFixed(3)}, accuracy ${t.accuracy.toFixed(3)}. ${MACRO_F1} Precision: how many of the texts that were given the class belong to it. Recall: how many of its texts were given the class. F1 is high when both are.`),
    bigTable("classes-table", [
      { name: "class", value: (row) => classes[row][0] },
      ...["precision", "recall", "f1"].map((name) => ({ name, number: true, value: (row) => classes[row][1][name] })),
      { name: "rows", number: true, value: (row) => classes[row][1].support },
    ], classes.length),
    t.noise ? h("table", { id: "noise" }, h("thead", {}, h("tr", {}, h("th", {}, "texts"), h("th", { class: "number" }, "macro-F1"), h("th", { class: "number" }, "accuracy"))),
      h("tbody", {}, [["as they are", t], ...Object.entries(t.noise).map(([name, one]) => [`with noise ${name}`, one])].map(([name, one]) =>
        h("tr", {}, h("td", {}, name), h("td", { class: "number" }, one.macro_f1.toFixed(3)), h("td", { class: "number" }, one.accuracy.toFixed(3)))))) : null,
    h("div", { class: "side" },
      t.confusion && t.confusion.length === data.labels.length ? h("figure", {}, h("h3", {}, "Confusion matrix"), confusion(data.labels, t.confusion)) : null,
      t.reliability && t.reliability.length ? h("figure", {}, h("h3", {}, "Reliability"), reliabilityDiagram(t.reliability), h("figcaption", {}, "Dots on the line: the model is right as often as it says. Larger dots have more rows.")) : null));
}

if (data.rounds && data.rounds.length) {
  const names = [...new Set(data.rounds.flatMap((row) => Object.keys(row)))].filter((name) => name !== "round");
  const spelled = { loss: "all", loss_original: "originals", loss_augmented: "rewrites", loss_unlabelled: "unlabelled texts", dev_loss: "dev rows", dev_macro_f1: "macro-F1", dev_accuracy: "accuracy", flip_rate: "flip rate", s_div: "diversity (s_div)", s_qua: "quality (s_qua)" };
  const charts = [["Losses", /loss/], ["Dev scores", /f1|accuracy/], ["Scores of the kept rewrites", /s_div|s_qua|flip/], ["Rows", /kept|rejected|short/], ["Seconds", /seconds/]];
  const used = new Set();
  const figures = charts.map(([title, pattern]) => {
    const mine = names.filter((name) => pattern.test(name) && !used.has(name));
    mine.forEach((name) => used.add(name));
    const series = mine.map((name) => [spelled[name] || name.replace(/^seconds /, ""), data.rounds.flatMap((row, i) => (name in row ? [[row.round ?? i, row[name]]] : []))]);
    const last = ([, points]) => points[points.length - 1][1];
    const largest = [...series].sort((a, b) => last(b) - last(a)).slice(0, 6);
    return series.length ? lines(title, title === "Seconds" ? largest : series, { marked: data.best_round ?? null }) : null;
  });
  section("Learning curve", "rounds", h("p", {}, `${data.rounds_note} A loss says how far predictions are from the labels; lower is better. Diversity (s_div) is how much rewrites surprise the classifier, quality (s_qua) how sure it is of their class, and the flip rate is the share of kept rewrites to which it gives another class than to the original. ${MACRO_F1}`),
    h("div", { class: "side" }, figures));
}

if (data.scatter) {
  const s = data.scatter, kept = color("--kept"), dropped = color("--dropped");
  const points = s.s_div.map((x, i) => ({ x, y: s.s_qua[i], color: s.kept[i] ? kept : dropped, shape: s.kept[i] ? 1 : 0, text: s.text[i], alpha: s.kept[i] ? 0.75 : 0.3 }));
  points.sort((a, b) => a.shape - b.shape);
  const unit = [...s.s_div, ...s.s_qua].every((v) => v >= 0 && v <= 1) ? [0, 1] : null;
  section("Diversity and quality", "scatter",
    h("p", {}, "s_div is diversity: how much a rewrite surprises the classifier. s_qua is quality: how sure the classifier is of the class. s_tot is their sum; the largest of each sample are kept."),
    h("p", {}, s.with_dropped ? `Every point is a candidate${s.normalized ? "; both scores are normalized within its sample" : ""}.` : "Only kept rewrites are shown; run with --candidates to see the others too."),
    legend(["kept", kept], ...(s.with_dropped ? [["dropped", dropped]] : [])),
    plot("scatter-plot", points, { width: 620, height: 460, x: { name: "s_div, diversity", range: unit }, y: { name: "s_qua, quality", range: unit } }));
}

if (data.map) {
  const m = data.map;
  if (m.missing) section("Hidden states", "map", h("p", {}, m.missing));
  else {
    const at = (i, shape) => ({ x: m.x[i], y: m.y[i], text: `${m.labels[m.class[i]]}: ${m.text[i]}`, color: COLORS[m.class[i] % COLORS.length], shape, size: shape ? 3 : 3.6, alpha: shape ? 0.55 : 0.95 });
    const rewritten = m.panels.some(([, rows]) => rows.length);
    section("Hidden states", "map",
      h("p", {}, `How the classifier sees originals (dots)${rewritten ? " and rewrites (triangles)" : ""}: a t-SNE map of its hidden states, where near texts are alike to it and nothing else is meaningful. Colours are classes.${m.panels.length > 1 ? " The first map has the rewrites that were kept; the others have those that the diversity score or the quality score alone would keep." : ""}`),
      legend(...m.labels.map((name, i) => [name, COLORS[i % COLORS.length]])),
      h("div", { class: "side" }, m.panels.map(([name, rows], n) =>
        h("figure", {}, plot(`map-${n}`, [...rows.map((i) => at(i, 1)), ...m.originals.map((i) => at(i, 0))], { width: m.panels.length > 1 ? 360 : 560, height: m.panels.length > 1 ? 330 : 460 }),
          h("figcaption", {}, rewritten ? `originals and ${name}` : "originals")))));
  }
}

if (data.examples && data.examples.length) {
  const classes = [...new Set(data.examples.map((example) => example.label))].sort();
  const byClass = [...data.examples].sort((a, b) => classes.indexOf(a.label) - classes.indexOf(b.label));
  const only = h("select", { "aria-label": "only this class", onchange: () => document.querySelectorAll("#examples [data-class]").forEach((node) => { node.hidden = Boolean(only.value) && node.dataset.class !== only.value; }) },
    h("option", { value: "" }, "every class"), classes.map((value) => h("option", { value }, value)));
  section("Examples", "examples", h("p", {}, "New words are marked, removed words are struck through; a tick says that the rewrite was kept."), h("div", { class: "bar" }, only),
    byClass.map((example) => h("div", { class: "scroll", "data-class": example.label, tabindex: "0" }, h("h3", {}, example.label), h("table", {},
      h("thead", {}, h("tr", {}, ["kept", "text", "operation"].map((name) => h("th", {}, name)), ["s_div", "s_qua", "s_tot"].map((name) => h("th", { class: "number" }, name)))),
      h("tbody", {},
        h("tr", { class: "original" }, h("td"), h("td", { class: "text" }, example.source), h("td", {}, "original"), h("td"), h("td"), h("td")),
        example.candidates.map((c) => h("tr", {},
          h("td", { class: "tick" }, c.kept ? "✓" : ""),
          h("td", { class: "text" }, c.text.map(([piece, changed]) => (changed ? h(changed > 1 ? "del" : "mark", {}, piece) : piece))),
          h("td", {}, c.operation),
          c.scores.map((v) => h("td", { class: "number" }, v.toFixed(2))))))))));
}

if (data.stages && data.stages.length) {
  const most = Math.max(...data.stages.map(([, seconds]) => seconds), 1e-9), total = data.stages.reduce((sum, [, seconds]) => sum + seconds, 0);
  section("Time", "stages", h("p", {}, "CPU seconds in each stage, summed over all workers."),
    h("div", { class: "meter" }, data.stages.flatMap(([name, seconds]) => [h("span", {}, name), h("div", { style: `width:${(100 * seconds) / most}%` }), h("span", {}, `${seconds.toFixed(1)} s, ${((100 * seconds) / (total || 1)).toFixed(0)}%`)])));
}

if (data.kept) {
  const k = data.kept, name = (column) => (row) => k[`${column}_names`][k[column][row]];
  section("Kept samples", "kept",
    h("p", {}, k.total > k.text.length ? `${number(k.text.length)} of ${number(k.total)} rows, evenly from all files.` : `${number(k.total)} rows.`),
    bigTable("kept-table", [
      { name: "label", value: name("label"), filter: true },
      { name: "text", value: (row) => k.text[row], text: true },
      { name: "original", value: name("source_text"), text: true },
      { name: "operation", value: name("operation"), filter: true },
      { name: "round", value: (row) => k.round[row], number: true, filter: true },
      { name: "rank", value: (row) => k.rank[row], number: true },
      { name: "s_div", value: (row) => k.s_div[row], number: true },
      { name: "s_qua", value: (row) => k.s_qua[row], number: true },
      { name: "s_tot", value: (row) => k.s_tot[row], number: true },
      { name: "id", value: name("sample_id") },
    ], k.text.length));
}

if (data.pool && data.pool.text.length) {
  const p = data.pool;
  section("Unlabelled texts", "pool", h("p", {}, "What rounds learned from unlabelled texts: the class that the model gave each, its soft label, and the weight that the text had."),
    bigTable("pool-table", [
      { name: "class", value: (row) => p.label[row], filter: true },
      { name: "text", value: (row) => p.text[row], text: true },
      { name: "soft label", value: (row) => p.soft[row] },
      { name: "weight", value: (row) => p.weight[row], number: true },
      { name: "round", value: (row) => p.round[row], number: true, filter: true },
      { name: "rewritten", value: (row) => (p.rewritten[row] ? "yes" : "no"), filter: true },
    ], p.text.length, 25));
}

if (data.review && data.review.length) {
  const r = data.review;
  section("To label by hand", "review", h("p", {}, "Texts of which the model is least sure, and which differ from each other; review.csv has them. Entropy is large where several classes are likely."),
    bigTable("review-table", ["id", "text", "class", "confidence", "entropy"].map((name, c) => ({ name, value: (row) => r[row][c], text: c === 1, number: c > 2, filter: c === 2 })), r.length, 25));
}

if (data.labelled && data.labelled.text.length) {
  const l = data.labelled;
  section("Labelled texts", "labelled", h("p", {}, `${number(l.text.length)} texts, evenly from all files, with the class that the model gave each and how likely it finds the likeliest classes.`),
    bigTable("labelled-table", [
      { name: "class", value: (row) => l.label[row], filter: true },
      { name: "text", value: (row) => l.text[row], text: true },
      { name: "confidence", value: (row) => l.confidence[row], number: true },
      { name: "soft label", value: (row) => l.soft[row] },
      { name: "id", value: (row) => l.id[row] },
    ], l.text.length, 25));
}

if (data.rejected && (data.rejected.total || data.rejected.reasons.length)) {
  const r = data.rejected;
  section("Rejected", "rejected", h("p", {}, `${number(r.total)} rows.`),
    h("table", { id: "reasons" }, h("thead", {}, h("tr", {}, h("th", {}, "reason"), h("th", { class: "number" }, "rows"))),
      h("tbody", {}, r.reasons.map(([reason, count]) => h("tr", {}, h("td", { class: "text" }, reason), h("td", { class: "number" }, number(count)))))),
    r.rows.length ? bigTable("rejected-table", ["id", "stage", "reason", "text"].map((title, c) => ({ name: title, value: (row) => r.rows[row][c], text: c > 1 })), r.rows.length, 20) : null);
}

const made = [
  ["Command", data.command],
  ["Options", Object.entries(data.request).map(([name, value]) => `${name}: ${typeof value === "object" ? JSON.stringify(value) : value}`).join("\n")],
  ["Versions", Object.entries(data.versions).map(([name, version]) => `${name} ${version}`).join("\n")],
].filter(([, text]) => text);
if (made.length) section("How it was made", "made", made.map(([title, text]) => [h("h3", {}, title), h("pre", {}, text)]));
document.body.dataset.ready = "yes";
