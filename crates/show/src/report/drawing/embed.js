"use strict";
// Shows the drawings that are packed behind the first one: a slider over the states, and a choice of
// the unwinder. Without it the image is the first drawing.
(() => {
  // It may be one of several images in a page.
  const root = document.currentScript.closest("svg");
  const by = (id) => root.querySelector(`#${id}`);
  const html = (name, attributes, ...inside) => {
    const element = document.createElementNS("http://www.w3.org/1999/xhtml", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...inside);
    return element;
  };

  const unpack = async () => {
    const bytes = Uint8Array.from(atob(by("states").textContent), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
    return new Response(stream).text();
  };

  // See embed.rs.
  const read = (text) => {
    const lines = text.trimEnd().split("\n");
    const noun = lines.shift();
    const count = Number(lines.shift());
    const walkers = lines.splice(0, count);
    const states = [];
    for (let at = 0; at < lines.length; at += count + 1) {
      const drawings = lines.slice(at + 1, at + 1 + count).map((line) => line.split("\t"));
      states.push({ number: lines[at], drawings });
    }
    return { noun, walkers, states };
  };

  const start = ({ noun, walkers, states }) => {
    let state = Number(root.dataset.state), walker = Number(root.dataset.walker);
    const slider = html("input", { type: "range", min: 0, max: states.length - 1, "aria-label": noun });
    const back = html("button", { type: "button" }, "◀ previous");
    const next = html("button", { type: "button" }, "next ▶");
    const number = html("span", { role: "status" });
    const options = walkers.map((name, place) => html("option", { value: place }, name));
    const choice = html("select", { "aria-label": "unwinder" }, ...options);
    const group = html("div", { class: "controls", role: "group", "aria-label": "States" },
      slider, back, next, number);
    if (walkers.length > 1) group.append(choice);

    // The states at which the unwinder is wrong, above the slider.
    const ticks = () => {
      const step = by("controls").width.baseVal.value / states.length;
      const wrong = states.map(({ drawings }, place) =>
        drawings[walker][0] === "wrong" ? `M${place * step} 2h${Math.max(step - 1, 1)}` : "");
      by("ticks").setAttribute("d", wrong.join(""));
    };

    const show = () => {
      const { number: name, drawings } = states[state];
      const [, title, body] = drawings[walker];
      // Made by unwind-sim, with every name in it escaped.
      by("drawing").innerHTML = body;
      by("title").innerHTML = title;
      by("desc").textContent = "";
      slider.value = state;
      slider.setAttribute("aria-valuetext", `${noun} ${name}: ${by("drawing").querySelector(".place").textContent}`);
      number.textContent = `${noun} ${name} (${states[0].number} to ${states.at(-1).number})`;
      back.disabled = state === 0;
      next.disabled = state === states.length - 1;
      choice.value = walker;
      ticks();
    };

    slider.addEventListener("input", () => { state = Number(slider.value); show(); });
    choice.addEventListener("change", () => { walker = Number(choice.value); show(); });
    for (const [button, way] of [[back, -1], [next, 1]]) {
      button.addEventListener("click", () => { state += way; show(); });
    }
    by("controls").append(group);
    show();
    root.dataset.ready = "true";
  };

  // A browser that cannot unpack it shows the first drawing.
  unpack().then((text) => start(read(text))).catch((error) => console.error(error));
})();
