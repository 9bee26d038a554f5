"use strict";
// Shows the entries that are packed in the page, and follows links, keys and the pointer. Without it
// the page shows the first state, all findings, the first heat map and the first flame graph.
(() => {
  const by = (id) => document.getElementById(id);
  const all = (selector, below = document) => [...below.querySelectorAll(selector)];

  // Packed text: base64 of a raw deflate stream.
  const unpack = async (id) => {
    const bytes = Uint8Array.from(atob(by(id).textContent), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
    return new Response(stream).text();
  };

  // The entries: by key, the numbers of their pieces. See pieces.rs.
  const read = (lines) => {
    const entries = new Map();
    let last = [], known = 0;
    for (const line of lines.split("\n")) {
      if (line === "") continue;
      const words = line.split(" ");
      const ids = [];
      let cursor = 0;
      for (const word of words.slice(1)) {
        if (word[0] === "+") {
          for (let n = Number(word.slice(1)); n > 0; n--) ids.push(known++);
        } else if (word[0] === "=") {
          ids.push(Number(word.slice(1)));
        } else {
          const [distance, length] = word.split(":").map(Number);
          const from = cursor + distance;
          cursor = from + length;
          for (let i = from; i < cursor; i++) ids.push(last[i]);
        }
      }
      entries.set(words[0], ids);
      last = ids;
    }
    return entries;
  };

  const theme = () => {
    const choose = by("theme").querySelector("select");
    by("theme").hidden = false;
    choose.addEventListener("change", () => { document.documentElement.dataset.theme = choose.value; });
  };

  // Tables whose columns sort. A row, or the rows of a tbody, stay together.
  const sortable = (table) => {
    const bodies = all("tbody", table);
    const items = bodies.length > 1 ? bodies : all("tr", bodies[0] ?? table);
    const heads = all("thead th", table);
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") !== "ascending";
        for (const other of heads) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const value = (item) => (item.matches("tr") ? item : item.rows[0]).cells[column].textContent.trim();
        const order = new Intl.Collator("en", { numeric: true });
        const sorted = [...items].sort((a, b) => order.compare(value(a), value(b)) * (up ? 1 : -1));
        const parent = items[0]?.parentNode;
        if (parent) parent.append(...sorted);
      });
    });
  };

  const filter = () => {
    const box = by("filter");
    if (!box) return;
    by("filter-box").hidden = false;
    const items = all(".groups tbody").map((item) => [item, item.textContent.toLowerCase()]);
    const apply = () => {
      const words = box.value.toLowerCase().split(/\s+/).filter((word) => word !== "");
      let shown = 0;
      for (const [item, text] of items) {
        item.hidden = !words.every((word) => text.includes(word));
        if (!item.hidden) shown++;
      }
      by("filter-count").textContent = `${shown} of ${items.length} causes`;
    };
    box.addEventListener("input", apply);
    apply();
    document.addEventListener("keydown", (event) => {
      if (event.key === "/" && !event.target.closest("input, select, textarea")) {
        event.preventDefault();
        box.focus();
      }
    });
  };

  // The words that a frame was read from, its row in the other list, and its rule.
  const light = (frame) => {
    for (const lit of all(".lit")) lit.classList.remove("lit");
    const details = by("details");
    if (!frame) { details.hidden = true; return; }
    const reads = frame.dataset.reads.split(" ").filter((read) => read !== "");
    for (const read of reads) {
      by("state").querySelector(`[data-word="${CSS.escape(read)}"]`)?.classList.add("lit");
    }
    frame.classList.add("lit");
    details.replaceChildren();
    details.hidden = false;
    if (frame.dataset.step === undefined) {
      const title = document.createElement("p");
      title.append(...[...frame.cloneNode(true).childNodes]);
      for (const card of all(".card", title)) card.className = "";
      details.append(title);
      for (const twin of all(`.frames li[data-step]`, by("state"))) {
        if (reads.length > 0 && twin.dataset.reads.split(" ").includes(reads[0])) twin.classList.add("lit");
      }
      return;
    }
    const walk = frame.closest("[data-walker]").dataset.walker;
    const step = by("state").querySelector(
      `.walk[data-walker="${CSS.escape(walk)}"] [data-step="${frame.dataset.step}"]`);
    const copy = step.cloneNode(true);
    for (const part of all("details", copy)) part.open = true;
    details.append(...copy.childNodes);
    for (const twin of all(".frames li[data-frame]", by("state"))) {
      if (twin.dataset.reads !== "" && reads.includes(twin.dataset.reads)) twin.classList.add("lit");
    }
  };

  // Flame graphs: a click on a box zooms in, a search marks boxes, and what is said of a box leads to
  // the first state that has it.
  const flames = (noun) => {
    const part = by("flame");
    const inside = (name) => part.querySelector(`[data-flame="${name}"]`);
    const boxes = (graph) => all("g[data-box]", graph).map((element) => {
      const rect = element.querySelector("rect");
      // Where it is without a zoom.
      element.dataset.x ??= rect.getAttribute("x");
      element.dataset.width ??= rect.getAttribute("width");
      const [x, width] = [Number(element.dataset.x), Number(element.dataset.width)];
      const title = element.querySelector("title").textContent;
      const [, name, count] = title.match(/^(.*): (\d+) of \d+(?:, \w+)?$/s);
      return { element, rect, title, name, count: Number(count), x, end: x + width, depth: Number(element.dataset.box) };
    });

    const draw = (box, x, end) => {
      const rounded = (value) => Number(value.toFixed(2));
      box.rect.setAttribute("x", rounded(x));
      box.rect.setAttribute("width", rounded(Math.max(end - x, 0.1)));
      let text = box.element.querySelector("text");
      const letters = Math.floor((end - x - 6) / 6);
      if (letters < 3) { text?.remove(); return; }
      if (!text) {
        text = document.createElementNS(box.rect.namespaceURI, "text");
        text.setAttribute("y", Number(box.rect.getAttribute("y")) + 11);
        box.element.append(text);
      }
      text.setAttribute("x", rounded(x + 3));
      text.textContent = box.name.length <= letters ? box.name : box.name.slice(0, letters - 1) + "\u2026";
    };

    // All that lies below or above a box gets the whole width; without one, everything is shown.
    const zoom = (graph, to) => {
      const whole = graph.viewBox.baseVal.width;
      const [from, scale] = to ? [to.x, whole / (to.end - to.x)] : [0, 1];
      for (const box of boxes(graph)) {
        const is_below = to && box.depth < to.depth;
        const is_there = !to || (is_below ? box.x <= to.x && box.end >= to.end
          : box.x >= to.x - 0.01 && box.end <= to.end + 0.01);
        box.element.classList.toggle("dim", Boolean(is_below));
        if (!is_there) { box.element.setAttribute("display", "none"); continue; }
        box.element.removeAttribute("display");
        draw(box, Math.max((box.x - from) * scale, 0), Math.min((box.end - from) * scale, whole));
      }
    };
    const out = () => {
      for (const graph of all(".flame", part)) zoom(graph, null);
      inside("out").disabled = true;
    };

    const say = (text, box) => {
      const status = inside("status");
      status.replaceChildren(text);
      if (!box) return;
      const choose = document.querySelector("select[data-entry=flame]");
      const to = new URLSearchParams({ sample: box.element.dataset.first, unwinder: choose.selectedOptions[0].textContent });
      const link = document.createElement("a");
      link.href = "#" + to;
      link.textContent = `${noun} ${box.element.dataset.first}`;
      status.append(". First: ", link);
    };
    const into = (box) => {
      out();
      zoom(box.element.ownerSVGElement, box);
      inside("out").disabled = false;
      say(box.title, box);
    };

    const search = (wanted) => {
      let matches = [];
      for (const box of boxes(part)) {
        const is_match = wanted !== "" && box.name.toLowerCase().includes(wanted);
        box.rect.classList.toggle("match", is_match);
        if (is_match) matches.push(box);
      }
      matches.sort((a, b) => b.count - a.count);
      if (wanted === "") say("A click on a box zooms in.");
      else if (matches.length === 0) say(`No box has ${wanted} in its name.`);
      else say(`${matches.length} ${matches.length === 1 ? "box" : "boxes"}; the widest is ${matches[0].title}`, matches[0]);
      return matches;
    };

    part.addEventListener("click", (event) => {
      const element = event.target.closest("g[data-box]");
      if (element) into(boxes(element.ownerSVGElement).find((box) => box.element === element));
      else if (event.target === inside("out")) { out(); say("A click on a box zooms in."); }
    });
    part.addEventListener("input", (event) => {
      if (event.target === inside("search")) search(event.target.value.trim().toLowerCase());
    });
    part.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.target !== inside("search")) return;
      const [widest] = search(event.target.value.trim().toLowerCase());
      if (widest) into(widest);
    });
  };

  const timeline = async () => {
    if (!by("entries")) return;
    const [texts, lines] = await Promise.all([unpack("pieces"), unpack("entries")]);
    const pieces = texts.split("\n");
    const entries = read(lines);
    const html = (key) => entries.get(key).map((id) => pieces[id]).join("");
    const numbers = [...entries.keys()].filter((key) => !key.includes(":")).map(Number);
    const place = new Map(numbers.map((number, index) => [number, index]));
    const slider = by("slider"), walker = by("walker"), state = by("state");
    const at = { index: place.get(Number(state.dataset.opening)) ?? 0, walker: walker.value, step: null };
    let shown = -1;

    const say = (text) => { by("status").textContent = text; };
    const steps = () => all(`.walk:not([hidden]) .steps > li`, state);

    const show = () => {
      if (shown !== at.index) {
        // Made by this program, with every name in it escaped; the policy runs no script in it.
        state.innerHTML = html(String(numbers[at.index]));
        shown = at.index;
      }
      slider.value = at.index;
      slider.setAttribute("aria-valuetext", by("state-heading").textContent);
      by("number").textContent = numbers[at.index];
      walker.value = at.walker;
      for (const part of all("[data-walker]", state)) {
        const mine = part.dataset.walker === at.walker;
        if (part.matches("tr")) {
          if (mine) part.setAttribute("aria-current", "true"); else part.removeAttribute("aria-current");
        } else {
          part.hidden = !mine;
        }
      }
      const list = steps().filter((item) => item.dataset.step !== undefined);
      const numbered = (item) => Number(item.dataset.step);
      // Of a long walk not all steps are there.
      if (at.step !== null) at.step = numbered(list.find((item) => numbered(item) >= at.step) ?? list.at(-1));
      list.forEach((item) => {
        const number = numbered(item);
        item.classList.toggle("later", at.step !== null && number > at.step);
        if (number === at.step) item.setAttribute("aria-current", "step"); else item.removeAttribute("aria-current");
      });
      const found = all(".side:not([hidden]) > .frames > li[data-step]", state);
      const arrows = all("div.arrows:not([hidden]) path", state);
      found.forEach((item, number) => {
        const later = at.step !== null && Number(item.dataset.step) > at.step;
        item.classList.toggle("later", later);
        for (const arrow of arrows) {
          if (Number(arrow.dataset.frame) === number) arrow.classList.toggle("later", later);
        }
      });
      light(null);
      const now = found.find((item) => Number(item.dataset.step) === at.step);
      if (now) light(now);
    };

    const save = () => {
      const parts = new URLSearchParams({ sample: numbers[at.index], unwinder: at.walker });
      if (at.step !== null) parts.set("step", at.step);
      history.replaceState(null, "", "#" + parts);
    };
    const go = (change) => { Object.assign(at, change); say(""); show(); save(); };

    const is_in_sight = (element, least) => {
      if (!element) return false;
      const box = element.getBoundingClientRect();
      return Math.min(box.bottom, innerHeight) - Math.max(box.top, 0) >= Math.min(least, box.height);
    };
    const current = () => state.querySelector(".walk:not([hidden]) .steps > li[aria-current]");

    // A key changes what is in sight, or brings it there.
    const look = () => {
      if (!is_in_sight(state, 150)) by("states").scrollIntoView();
      const lit = state.querySelector(".side:not([hidden]) .frames li.lit[data-step]");
      const step = current();
      if (step && !is_in_sight(step, 20) && !is_in_sight(lit, 10)) step.scrollIntoView({ block: "nearest" });
    };

    // What the address says, such as #sample=12&unwinder=orc&step=3.
    const follow = () => {
      const parts = new URLSearchParams(location.hash.slice(1));
      if (!["sample", "unwinder", "step"].some((name) => parts.has(name))) return false;
      const told = [];
      if (parts.has("sample")) {
        const index = /^\d+$/.test(parts.get("sample")) ? place.get(Number(parts.get("sample"))) : undefined;
        if (index === undefined) told.push(`This page has no state ${parts.get("sample")}: it has ${numbers.length} of those from ${numbers[0]} to ${numbers.at(-1)}.`);
        else at.index = index;
      }
      if (parts.has("unwinder")) {
        const known = [...walker.options].some((option) => option.value === parts.get("unwinder"));
        if (known) at.walker = parts.get("unwinder");
        else told.push(`This page has no unwinder ${parts.get("unwinder")}.`);
      }
      at.step = /^\d+$/.test(parts.get("step") ?? "") ? Number(parts.get("step")) : null;
      show();
      say(told.join(" "));
      by("states").scrollIntoView();
      if (!is_in_sight(current(), 20)) current()?.scrollIntoView({ block: "nearest" });
      return true;
    };

    const wrong = all(".ticks .wrong").flatMap((path) =>
      [...path.getAttribute("d").matchAll(/M(\d+)/g)].map((found) => Number(found[1])));
    const moves = {
      "next": () => go({ index: Math.min(at.index + 1, numbers.length - 1), step: null }),
      "previous": () => go({ index: Math.max(at.index - 1, 0), step: null }),
      "first": () => go({ index: 0, step: null }),
      "last": () => go({ index: numbers.length - 1, step: null }),
      "next-wrong": () => {
        const index = wrong.find((index) => index > at.index);
        if (index === undefined) say("No unwinder becomes wrong at a later state on this page."); else go({ index, step: null });
      },
      "previous-wrong": () => {
        const index = wrong.findLast((index) => index < at.index);
        if (index === undefined) say("No unwinder becomes wrong at an earlier state on this page."); else go({ index, step: null });
      },
      "step": () => go({ step: at.step === null ? 0 : at.step + 1 }),
      "step-back": () => {
        const before = steps().map((item) => Number(item.dataset.step)).filter((number) => number < at.step);
        go({ step: at.step === null ? null : before.at(-1) ?? null });
      },
    };
    const keys = {
      s: "next", S: "previous", c: "next-wrong", C: "previous-wrong",
      f: "step", F: "step-back", Home: "first", End: "last",
    };
    for (const button of all("[data-go]")) button.addEventListener("click", moves[button.dataset.go]);
    slider.addEventListener("input", () => go({ index: Number(slider.value), step: null }));
    walker.addEventListener("change", () => go({ walker: walker.value, step: null }));
    document.addEventListener("keydown", (event) => {
      if (!by("keys").checked || event.ctrlKey || event.altKey || event.metaKey) return;
      if (event.target.closest("input:not([type=checkbox]), select, textarea")) return;
      if (/^[1-9]$/.test(event.key)) {
        const option = walker.options[Number(event.key) - 1];
        if (option) { go({ walker: option.value, step: null }); look(); }
      } else if (keys[event.key]) {
        event.preventDefault();
        moves[keys[event.key]]();
        look();
      }
    });
    state.addEventListener("pointerover", (event) => {
      const frame = event.target.closest(".frames li[data-reads]");
      if (frame) light(frame);
    });
    state.addEventListener("focusin", (event) => {
      const frame = event.target.closest(".frames li[data-reads]");
      if (frame) light(frame);
    });
    window.addEventListener("hashchange", follow);

    for (const choose of all("select.entry")) {
      const fill = () => {
        by(choose.dataset.entry).innerHTML = html(`${choose.dataset.entry}:${choose.value}`);
      };
      choose.disabled = false;
      choose.addEventListener("change", fill);
      if (by(choose.dataset.entry).querySelector(".packed")) fill();
    }
    flames(document.querySelector("label[for=slider]").firstChild.textContent.trim());
    by("controls").hidden = false;
    // Before the scrolling: what is shown only now moves what is below it.
    document.documentElement.dataset.ready = "true";
    if (!follow()) show();
  };

  theme();
  for (const table of all("table.sortable")) sortable(table);
  filter();
  timeline().catch((error) => {
    const told = document.createElement("p");
    told.className = "notice";
    told.role = "alert";
    told.textContent = `The other states cannot be shown: this browser cannot unpack them (${error}).`;
    by("main").prepend(told);
  });
})();
