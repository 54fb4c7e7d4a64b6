"use strict";
// Opens the run that a link leads to, and draws the explorer from the data in the page.

function openTarget() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target instanceof HTMLDetailsElement) {
    target.open = true;
    target.scrollIntoView();
  }
}
addEventListener("hashchange", openTarget);
openTarget();

const holder = document.getElementById("explored");
if (holder) explore(JSON.parse(holder.textContent));

function explore(data) {
  const at = (id) => document.getElementById(id);
  const element = (tag, text = "", name = "") => Object.assign(document.createElement(tag), { textContent: text, className: name });
  const options = (select, labels) =>
    select.replaceChildren(...labels.map((label, value) => Object.assign(element("option", label), { value })));
  const COLUMNS = ["P", "R", "F1"];
  const METRICS = { original: "original", cluster: "cluster-based" };
  const MATCHES = { exact: "exact", bleu: "BLEU", rouge_l: "ROUGE-L" };

  // A letter and a colour for each group: neighbours differ in hue, and the letter says the same without colour.
  const letter = (group) => (group < 26 ? "" : String.fromCharCode(64 + Math.floor(group / 26))) + String.fromCharCode(65 + (group % 26));
  const colour = (group) => `hsl(${(group * 137.5) % 360} 70% 90%)`;

  function line(sentence, group, score) {
    const item = element("li", "", group === null ? "alone" : "");
    if (group !== null) item.style.background = colour(group);
    item.append(element("b", group === null ? "\u2013" : letter(group)), element("span", sentence));
    if (score !== undefined) item.append(element("i", score.toFixed(2)));
    return item;
  }

  // Groups of the gold sentences: each one alone in the original metric, its cluster in the other.
  function goldGroups(step, metric, match) {
    if (metric === "original" || !step.models.length) return step.gold.map((_, place) => place);
    const clusters = step.models[0].clusters[match].map(([, gold]) => gold).filter((gold) => gold.length);
    clusters.sort((one, other) => Math.min(...one) - Math.min(...other));
    return step.gold.map((sentence) => clusters.findIndex((gold) => gold.some((place) => step.gold[place] === sentence)));
  }

  function saidLines(said, groups, metric, match) {
    if (metric === "original")
      return said.said.map((sentence, place) => {
        const [partner, score] = said.best[match].predicted[place];
        return line(sentence, partner === null ? null : groups[partner], score);
      });
    return said.clusters[match].flatMap(([places, gold, score]) =>
      places.map((place, index) => line(said.said[place], gold.length ? groups[gold[0]] : null, index ? undefined : score)));
  }

  function scores(said, metric, match) {
    const table = element("table");
    const head = element("tr");
    head.append(element("th", "%"), ...COLUMNS.map((name) => element("th", name)));
    table.append(head);
    for (const [kind, kindName] of Object.entries(METRICS))
      for (const [name, matchName] of Object.entries(MATCHES)) {
        const row = element("tr", "", kind === metric && name === match ? "chosen" : "");
        row.append(element("th", `${kindName}, ${matchName}`));
        row.append(...said.scores[`${kind}_${name}`].map((value) => element("td", (100 * value).toFixed(1))));
        table.append(row);
      }
    return table;
  }

  function card(model, said, groups, metric, match) {
    const box = element("article", "", "card");
    const list = element("ul");
    list.append(...saidLines(said, groups, metric, match));
    if (!said.said.length) list.append(element("li", "There will be no change.", "alone"));
    box.append(element("h4", model.name), element("p", model.behind), list, scores(said, metric, match));
    if (said.repeated) box.append(element("p", `${said.repeated} more, word for word the same`));
    if (metric === "original" && said.best[match].gold.length) {
      const found = said.best[match].gold.map(([, score], place) => `${letter(groups[place])} ${score.toFixed(2)}`);
      box.append(element("p", `best match of each gold change: ${found.join(", ")}`));
    }
    box.append(element("p", model.file), element("p", model.signatures[`${metric}_${match}`]));
    return box;
  }

  function draw() {
    const step = data.procedures[at("procedure").value].steps[at("step").value];
    const metric = document.querySelector("input[name=metric]:checked").value;
    const match = at("match").value;
    const groups = goldGroups(step, metric, match);
    at("text").textContent = `Step ${step.number}: ${step.text}`;
    const list = element("ul");
    list.append(...step.gold.map((sentence, place) => line(sentence, groups[place])));
    if (!step.gold.length) list.append(element("li", "There will be no change.", "alone"));
    at("gold").replaceChildren(element("h4", "Gold changes"), list);
    at("cards").replaceChildren(...data.models.map((model, place) => card(model, step.models[place], groups, metric, match)));
    at("before").disabled = at("step").value === "0";
    at("after").disabled = Number(at("step").value) === at("step").options.length - 1;
  }

  function choose() {
    const steps = data.procedures[at("procedure").value].steps;
    options(at("step"), steps.map((step) => `${step.number} of ${steps.length}`));
    draw();
  }

  function move(by) {
    at("step").value = Number(at("step").value) + by;
    draw();
  }

  options(at("procedure"), data.procedures.map((procedure) => procedure.goal));
  at("procedure").addEventListener("change", choose);
  at("before").addEventListener("click", () => move(-1));
  at("after").addEventListener("click", () => move(1));
  at("controls").addEventListener("change", (event) => event.target.id === "procedure" || draw());
  at("controls").addEventListener("submit", (event) => event.preventDefault());
  choose();
}
