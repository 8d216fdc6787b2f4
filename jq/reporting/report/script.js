// Tables that sort, a graph that zooms, a filter, and what is about one layer tied together.
// Names of the model come from the page's own elements and go back as text only.
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const one = (selector) => document.querySelector(selector);
const make = (tag, text, kind = "") => Object.assign(document.createElement(tag), { textContent: text, className: kind });

for (const table of all("table.sortable")) {
  all("th", table).forEach((head, column) => {
    head.querySelector("button")?.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      all("th", table).forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const key = (row) => row.cells[column].dataset.v ?? row.cells[column].textContent;
      const body = table.tBodies[0];
      const order = (a, b) => (isNaN(key(a)) || isNaN(key(b)) ? key(a).localeCompare(key(b)) : key(a) - key(b));
      [...body.rows].sort((a, b) => (down ? -order(a, b) : order(a, b))).forEach((row) => body.append(row));
    });
  });
}

// Which elements are about which layer.
const about = new Map();
for (const element of all("[data-layers], .node[data-layer]")) {
  element.layers = element.dataset.layer !== undefined ? [element.dataset.layer] : JSON.parse(element.dataset.layers);
  for (const name of element.layers) about.set(name, [...(about.get(name) ?? []), element]);
}

const section = (element) => element.closest("section")?.id;

function facts(row) {
  const heads = all("th", row.closest("table")), list = document.createElement("dl");
  [...row.cells].forEach((cell, i) => {
    if (i && cell.textContent && cell.textContent !== "–" && !cell.classList.contains("bars"))
      list.append(make("dt", heads[i].textContent), make("dd", cell.textContent));
  });
  return list;
}

function choose(name) {
  all(".chosen").forEach((element) => element.classList.remove("chosen"));
  const those = about.get(name) ?? [], detail = one("#detail");
  those.forEach((element) => element.classList.add("chosen"));
  if (!detail) return;
  detail.replaceChildren(make("h3", name));
  for (const id of ["layers", "plan"])
    for (const row of those.filter((element) => section(element) === id)) detail.append(facts(row));
  for (const row of those.filter((element) => section(element) === "rules"))
    detail.append(make("p", "rule to try:"), make("pre", row.cells[0].textContent));
  for (const card of those.filter((element) => element.matches(".card"))) detail.append(card.cloneNode(true));
  all("[data-layers]", detail).forEach((copy) => copy.classList.remove("chosen"));
  const links = make("p", "", "links");
  for (const element of those.filter((element) => element.matches("tr, .card, .node"))) {
    const to = { layers: "its row", plan: "in the plan", weights: "weight", activations: "activation", graph: "in the graph" }[section(element)];
    if (!to || links.textContent.includes(to)) continue;
    const link = make("button", to);
    link.addEventListener("click", () => element.scrollIntoView({ block: "center", inline: "center", behavior: "smooth" }));
    links.append(link);
  }
  detail.append(links);
  detail.scrollTop = 0;
}

for (const element of all("tr[data-layers], .node[data-layer]")) {
  const pick = () => getSelection().isCollapsed && choose(element.layers[0]);
  element.addEventListener("click", pick);
  element.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(element.layers[0]); }
  });
}

// The graph: its size is its zoom, the frame around it scrolls.
const frame = one(".net"), net = one("#net");
if (net) {
  all(".tools").forEach((tools) => (tools.hidden = false));
  const [wide, high] = [net.width.baseVal.value, net.height.baseVal.value];
  let scale = 1;
  const zoom = (to, x = frame.clientWidth / 2, y = frame.clientHeight / 2) => {
    to = Math.min(3, Math.max(0.05, to));
    const at = [(frame.scrollLeft + x) / scale, (frame.scrollTop + y) / scale];
    scale = to;
    net.setAttribute("width", wide * scale);
    net.setAttribute("height", high * scale);
    frame.scrollTo(at[0] * scale - x, at[1] * scale - y);
  };
  const room = () => [(frame.clientWidth - 24) / wide, (parseFloat(getComputedStyle(frame).maxHeight) - 24) / high];
  zoom(Math.min(1, Math.max(0.7, room()[0])));
  const first = one(".node").getBBox(); // in view, where the whole is too wide
  frame.scrollTo((first.x + first.width / 2) * scale - frame.clientWidth / 2, 0);
  frame.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const box = frame.getBoundingClientRect();
    zoom(scale * 2 ** (-event.deltaY / 200), event.clientX - box.left, event.clientY - box.top);
  }, { passive: false });
  for (const button of all("[data-zoom]")) button.addEventListener("click", () => {
    const how = button.dataset.zoom;
    zoom({ "+": scale * 1.3, "-": scale / 1.3, fit: Math.min(...room()), 1: 1 }[how]);
  });
  for (const button of all("[data-by]")) button.addEventListener("click", () => {
    all("[data-by]").forEach((other) => other.setAttribute("aria-pressed", other === button));
    frame.className = `net by-${button.dataset.by}`;
  });
  const worst = one("#rules tr[data-layers], #layers tr[data-layers]");
  if (worst) choose(worst.layers[0]);
}

// The filter: rows and cards go, nodes fade.
const filter = one(".filter");
if (filter) {
  filter.hidden = false;
  const [text, kind] = [filter.querySelector("input"), filter.querySelector("select")];
  const low = (name) => (about.get(name) ?? []).some((element) => element.matches(".a4, .a5, .o4, .o5"));
  const stays = (name) => (about.get(name) ?? []).some((element) => element.matches(".float"));
  const keep = (name) => name.toLowerCase().includes(text.value.toLowerCase())
    && (kind.value !== "bad" || low(name)) && (kind.value !== "float" || stays(name));
  const apply = () => {
    const names = [...about.keys()], kept = new Set(names.filter(keep)), any = text.value || kind.value;
    for (const element of all("[data-layers], .node[data-layer]")) {
      const hide = any && element.layers && !element.layers.some((name) => kept.has(name));
      element.classList.toggle(element.matches(".node") ? "faded" : "gone", !!hide && !element.closest("#detail"));
    }
    filter.querySelector(".count").textContent = any ? `${kept.size} of ${names.length} layers` : "";
  };
  text.addEventListener("input", apply);
  kind.addEventListener("change", apply);
}
