// Drives pages in a headless browser: FOLDER has case.html, throws.html and verify.html, and object.html
// with drawing.svg; screenshots and printed pages go to SHOTS. Ends with an error if anything is not as it should be.
"use strict";
const assert = require("node:assert/strict");
const fs = require("node:fs");
const path = require("node:path");
const puppeteer = require("puppeteer-core");
const [folder, shots] = process.argv.slice(2);
const axe = fs.readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

(async () => {
  const executablePath = ["/usr/bin", "/usr/local/bin", "/snap/bin"]
    .map((place) => path.join(place, process.env.BROWSER)).find(fs.existsSync);
  const browser = await puppeteer.launch({
    executablePath, headless: true, args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
  });

  // A page; what it logs or requests beside itself is an error.
  const open = async (name, { hash = "", scheme = "light", width = 1300, script = true } = {}) => {
    const page = await browser.newPage();
    page.faults = [];
    page.on("console", (message) => page.faults.push(message.text()));
    page.on("pageerror", (error) => page.faults.push(error.message));
    page.on("request", (request) => {
      if (!request.isNavigationRequest()) page.faults.push(request.url());
    });
    await page.setJavaScriptEnabled(script);
    await page.setViewport({ width, height: 1000 });
    await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
    const start = Date.now();
    await page.goto(`file://${folder}/${name}.html${hash}`);
    if (script) {
      await page.waitForFunction(() => !document.getElementById("entries") ||
        document.documentElement.dataset.ready === "true", { timeout: 60000 });
    }
    page.took = Date.now() - start;
    return page;
  };
  const close = async (page) => {
    assert.deepEqual(page.faults, []);
    await page.close();
  };
  const text = (page, selector) => page.$eval(selector, (found) => found.textContent);
  const number = (page) => text(page, "#number");
  const check = async (page, what) => {
    await page.evaluate(axe);
    const { violations, passes } = await page.evaluate(() => axe.run());
    assert.ok(passes.length > 20, `${what}: axe ran`);
    const found = violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.html.slice(0, 200)).join("; ")}`);
    assert.deepEqual(found, [], what);
  };

  // Colour schemes, widths, accessibility.
  for (const name of ["case", "throws", "verify"]) {
    for (const scheme of ["light", "dark"]) {
      for (const width of [1300, 390]) {
        const page = await open(name, { scheme, width });
        const ground = await page.$eval("body", (body) => getComputedStyle(body).backgroundColor);
        assert.equal(ground, scheme === "light" ? "rgb(255, 255, 255)" : "rgb(20, 23, 28)");
        const beyond = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        assert.ok(beyond <= 0, `${name} at ${width}: the page is ${beyond} pixels too wide`);
        await page.screenshot({ path: path.join(shots, `${name}-${scheme}-${width}.png`) });
        for (const part of ["picture", "heat", "flames", "groups"]) {
          const element = await page.$(`.${part}`);
          if (element) await element.screenshot({ path: path.join(shots, `${name}-${scheme}-${width}-${part}.png`) });
        }
        // On a phone the lists of a stack are below each other, and nothing has to be scrolled sideways.
        if (width === 390 && name !== "verify") {
          const wide = await page.$eval(".picture", (picture) => picture.scrollWidth - picture.clientWidth);
          assert.ok(wide <= 0, `${name}: the picture is ${wide} pixels too wide`);
          const [words, truth] = await page.$$eval(".picture > .side:not([hidden])", (sides) =>
            sides.slice(-2).map((side) => side.getBoundingClientRect()).map(({ top, bottom }) => ({ top, bottom })));
          assert.ok(truth.top >= words.bottom, `${name}: the true frames are below the words`);
        }
        if (width === 1300 || name === "case") await check(page, `${name} ${scheme} ${width}`);
        console.log(`${name} ${scheme} ${width}: ready after ${page.took} ms`);
        await close(page);
      }
    }
  }

  // A choice of colours holds against the system's.
  {
    const page = await open("case", { scheme: "light" });
    await page.select("#theme select", "dark");
    const ground = await page.$eval("body", (body) => getComputedStyle(body).backgroundColor);
    assert.equal(ground, "rgb(20, 23, 28)");
    await close(page);
  }

  // What matters comes first: the sentence, the picture, then the tables.
  for (const name of ["case", "throws"]) {
    const page = await open(name);
    const tops = await page.$$eval(".headline, .picture, .verdicts, .findings", (all) =>
      all.map((element) => [element.className, element.getBoundingClientRect().top]));
    const first = (name) => tops.find(([names]) => names.split(" ").includes(name))[1];
    assert.ok(first("headline") < first("picture"), "the sentence is first");
    assert.ok(first("picture") < first("verdicts") && first("picture") < first("findings"), "then the picture");
    assert.match(await text(page, ".headline"), /(is|becomes) wrong at \d+ of \d+ \w+\. At /);
    await close(page);
  }

  // Printed: small, and without a picture for each cell.
  for (const name of ["case", "throws", "verify"]) {
    const page = await open(name);
    const start = Date.now();
    const bytes = await page.pdf({ path: path.join(shots, `${name}.pdf`), format: "a4", timeout: 120000 });
    console.log(`${name}: printed after ${Date.now() - start} ms, ${bytes.length} bytes`);
    assert.ok(bytes.length < 1_000_000, `${name}: ${bytes.length} bytes printed`);
    await close(page);
  }

  // Slider, buttons and keys.
  {
    const page = await open("case");
    assert.equal(await number(page), "11", "it opens where fp is wrong");
    assert.equal(await page.$eval("#walker", (walker) => walker.value), "fp");
    await page.keyboard.press("1");
    await page.keyboard.press("Home");
    assert.equal(await number(page), "0");
    await page.keyboard.press("s");
    assert.equal(await number(page), "1");
    assert.match(await text(page, "#state-heading"), /^Instruction 1: /);
    assert.match(page.url(), /#sample=1&unwinder=dwarf$/);
    await page.keyboard.type("S");
    assert.equal(await number(page), "0");
    await page.keyboard.press("End");
    assert.equal(await number(page), "25");
    await page.keyboard.press("s");
    assert.equal(await number(page), "25");
    await page.keyboard.press("Home");
    await page.focus("#slider");
    await page.keyboard.press("ArrowRight");
    await page.keyboard.press("ArrowRight");
    assert.equal(await number(page), "2");
    await page.$eval("#slider", (slider) => slider.blur());
    await page.click("[data-go=next]");
    assert.equal(await number(page), "3");
    await page.keyboard.press("c");
    assert.equal(await number(page), "11", "fp becomes wrong at the call");
    await page.keyboard.press("c");
    assert.equal(await number(page), "14");
    await page.keyboard.type("C");
    assert.equal(await number(page), "11");
    // The walk of another unwinder, step by step.
    await page.keyboard.press("4");
    assert.equal(await page.$eval("#walker", (walker) => walker.value), "fp");
    assert.deepEqual(
      await page.$$eval(".walk:not([hidden])", (walks) => walks.map((walk) => walk.dataset.walker)), ["fp"]);
    await page.keyboard.press("f");
    await page.keyboard.press("f");
    assert.match(page.url(), /#sample=11&unwinder=fp&step=1$/);
    assert.equal(
      await page.$eval(".walk:not([hidden]) [aria-current=step]", (step) => step.dataset.step), "1");
    await page.keyboard.type("F");
    assert.match(page.url(), /&step=0$/);
    // Without keys.
    await page.click("#keys");
    await page.$eval("#keys", (box) => box.blur());
    await page.keyboard.press("s");
    assert.equal(await number(page), "11");
    await close(page);
  }

  // Links into the page, good and bad.
  {
    const page = await open("case", { hash: "#sample=16&unwinder=fp&step=2" });
    assert.equal(await number(page), "16");
    assert.equal(await page.$eval("#walker", (walker) => walker.value), "fp");
    assert.equal(
      await page.$eval(".walk:not([hidden]) [aria-current=step]", (step) => step.dataset.step), "2");
    await page.evaluate(() => { location.hash = "#sample=3&unwinder=orc"; });
    await page.waitForFunction(() => document.getElementById("number").textContent === "3");
    for (const [hash, told] of [
      ["#sample=99", "no state 99"], ["#sample=x", "no state x"], ["#unwinder=%3Cb%3E", "no unwinder <b>"],
      ["#sample=1&step=99999", ""],
    ]) {
      await page.evaluate((hash) => { location.hash = hash; }, hash);
      await page.waitForFunction(
        (told) => document.getElementById("status").textContent.includes(told), {}, told);
    }
    assert.equal(await number(page), "1");
    // From a finding and from a cell of the heat map.
    await page.evaluate(() => { document.querySelector(".findings tbody tr:last-child a").click(); });
    await page.waitForFunction(() => document.getElementById("number").textContent === "22");
    await page.evaluate(() => { document.querySelector(".heat td a").click(); });
    await page.waitForFunction(() => document.getElementById("number").textContent === "0");
    await close(page);
  }

  // A link scrolls to what it names, also when the page opens; a key brings what it changes into sight.
  {
    const is_in_sight = (page, selector) => page.$eval(selector, (element) => {
      const { top, bottom } = element.getBoundingClientRect();
      return bottom > 0 && top < innerHeight;
    });
    const state = await open("throws", { hash: "#sample=2852&unwinder=dwarf" });
    assert.equal(await number(state), "2852");
    assert.ok(await is_in_sight(state, "#state-heading"), "the state is in sight");
    assert.ok(await state.evaluate(() => scrollY > 0));
    await state.evaluate(() => scrollTo(0, document.documentElement.scrollHeight));
    assert.ok(!await is_in_sight(state, "#state-heading"));
    await state.keyboard.press("s");
    assert.ok(await is_in_sight(state, "#state-heading"), "a key leads back to the state");
    await close(state);
    const step = await open("throws", { hash: "#sample=2852&unwinder=fp&step=1" });
    assert.ok(await is_in_sight(step, ".walk:not([hidden]) [aria-current=step]"), "the step is in sight");
    await close(step);
  }

  // Flame graphs: a click zooms, a search marks, and both lead to a sample.
  {
    const page = await open("throws");
    const widths = () => page.$$eval("#flame .flame:first-of-type g[data-box]:not([display]) rect", (all) =>
      all.map((rect) => Number(rect.getAttribute("width"))));
    const before = await widths();
    const box = await page.evaluateHandle(() => {
      const all = [...document.querySelector("#flame .flame").querySelectorAll("g[data-box]")];
      const half = (g) => Number(g.querySelector("rect").getAttribute("width"));
      return all.find((g) => half(g) < 300 && half(g) > 40);
    });
    const name = await box.$eval("title", (title) => title.textContent);
    await box.click();
    const zoomed = await widths();
    assert.ok(zoomed.length < before.length, "only what is in line with the box is there");
    assert.equal(await box.$eval("rect", (rect) => Number(rect.getAttribute("width"))), 480);
    assert.ok((await text(page, "[data-flame=status]")).startsWith(name));
    await page.click("[data-flame=out]");
    assert.deepEqual(await widths(), before);
    await page.type("[data-flame=search]", "catcher_that_is_not_there");
    assert.match(await text(page, "[data-flame=status]"), /^No box has /);
    await page.$eval("[data-flame=search]", (box) => { box.value = ""; });
    await page.type("[data-flame=search]", "MAIN");
    assert.match(await text(page, "[data-flame=status]"), /^\d+ boxes; the widest is /);
    assert.ok(await page.$$eval("#flame .match", (all) => all.length) > 0);
    await page.keyboard.press("Enter");
    const [href, sample] = await page.$eval("[data-flame=status] a", (a) => [a.getAttribute("href"), a.textContent]);
    const unwinder = await page.$eval("select[data-entry=flame]", (choose) => choose.selectedOptions[0].textContent);
    assert.ok(href.includes(`unwinder=${unwinder}`));
    await page.click("[data-flame=status] a");
    await page.waitForFunction((sample) => `sample ${document.getElementById("number").textContent}` === sample, {}, sample);
    assert.equal(await page.$eval("#walker", (walker) => walker.value), unwinder);
    await close(page);
  }

  // A drawing in a page: a picture without a script, a slider with one.
  {
    const page = await open("object");
    const inside = page.frames().find((frame) => frame.url().endsWith("drawing.svg"));
    await inside.waitForFunction(() => document.documentElement.dataset.ready === "true");
    const place = () => inside.evaluate(() => document.querySelector("#drawing .place").textContent);
    assert.equal(await place(), "leaf+0x0: push %rbp");
    assert.equal(await inside.evaluate(() => document.querySelector("select").selectedOptions[0].textContent), "fp");
    // By pointer and by keyboard.
    await inside.evaluate(() => document.querySelectorAll("button")[1].click());
    assert.equal(await place(), "leaf+0x1: mov %rsp,%rbp");
    await inside.evaluate(() => document.querySelector("input").focus());
    await page.keyboard.press("ArrowLeft");
    assert.equal(await place(), "leaf+0x0: push %rbp");
    const wrong = () => inside.evaluate(() => document.querySelectorAll(".mark.wrong").length);
    assert.equal(await wrong(), 1);
    assert.ok(await inside.evaluate(() => document.querySelector("#ticks").getAttribute("d").split("M").length) > 2);
    await inside.evaluate(() => {
      const choose = document.querySelector("select");
      choose.value = 1;
      choose.dispatchEvent(new Event("change"));
    });
    assert.equal(await wrong(), 0, "dwarf is right there");
    assert.match(await inside.evaluate(() => document.querySelector("title").textContent), /^The walk of dwarf at leaf/);
    await page.screenshot({ path: path.join(shots, "object.png") });
    // The file of the drawing is what the page asked for, and nothing else.
    assert.deepEqual(page.faults.splice(0).map((url) => path.basename(url)), ["drawing.svg"]);
    await close(page);

    for (const scheme of ["light", "dark"]) {
      const still = await open("object", { script: false, scheme });
      await still.screenshot({ path: path.join(shots, `object-still-${scheme}.png`) });
      still.faults = [];
      await still.setJavaScriptEnabled(true);
      await close(still);
    }
  }

  // Hover and focus on a frame show rule and words.
  {
    const page = await open("case", { hash: "#sample=16&unwinder=orc" });
    const frame = await page.$(".side:not([hidden]) [data-step='2']");
    await frame.hover();
    assert.match(await text(page, "#details"), /rule.*cfa=rsp/);
    assert.equal(await page.$$eval(".words .lit", (lit) => lit.length), 1);
    await page.$eval("[data-frame='2'][tabindex]", (frame) => frame.focus());
    assert.match(await text(page, "#details"), /CFA/);
    const lit = await page.$eval(".words .lit", (word) => word.dataset.word);
    assert.equal(lit, await page.$eval("[data-frame='2'][tabindex]", (frame) => frame.dataset.reads));
    await close(page);
  }

  // Every state of a large page, and its maps and graphs.
  {
    const page = await open("throws");
    const count = await page.$eval("#slider", (slider) => Number(slider.max) + 1);
    assert.ok(count > 500, `${count} samples`);
    // It opens at a stack that is wrong, of an unwinder whose errors count.
    assert.ok(await page.$eval("#state", (state) => state.querySelector("tr[aria-current] .wrong") !== null));
    for (const place of [count - 1, 1, count >> 1, count >> 2]) {
      const start = Date.now();
      const index = await page.$eval("#slider", (slider, place) => {
        slider.value = place;
        slider.dispatchEvent(new Event("input"));
        return document.getElementById("number").textContent;
      }, place);
      await page.evaluate((index) => { location.hash = `#sample=${index}&unwinder=fp`; }, index);
      await page.waitForFunction((index) =>
        document.getElementById("state-heading").textContent.startsWith(`Sample ${index}: `), {}, index);
      console.log(`sample ${index} after ${Date.now() - start} ms`);
    }
    for (const kind of ["map", "flame"]) {
      const before = await page.$eval(`#${kind}`, (part) => part.innerHTML);
      const values = await page.$$eval(`select[data-entry=${kind}] option`, (all) => all.map((o) => o.value));
      for (const value of values.slice(0, 20)) await page.select(`select[data-entry=${kind}]`, value);
      const after = await page.$eval(`#${kind}`, (part) => part.innerHTML);
      assert.notEqual(before, after, kind);
    }
    assert.ok(await page.$$eval(".flame .lost, .flame .invented", (all) => all.length) > 0);
    await close(page);
  }

  // Findings: filter and sorting.
  {
    const page = await open("verify");
    const shown = () => page.$$eval(".groups tbody:not([hidden])", (all) =>
      all.map((body) => body.rows[0].cells[1].textContent));
    const all = await shown();
    await page.keyboard.press("/");
    await page.keyboard.type("leaf us503");
    const some = await shown();
    assert.ok(some.length > 0 && some.length < all.length, `${some}`);
    assert.ok(some.every((name) => name === "leaf"));
    assert.match(await text(page, "#filter-count"), new RegExp(`^${some.length} of ${all.length} `));
    await page.$eval("#filter", (box) => { box.value = ""; box.dispatchEvent(new Event("input")); });
    await page.click(".groups thead th:nth-child(2) button");
    assert.deepEqual(await shown(), [...all].sort());
    await page.click(".groups thead th:nth-child(2) button");
    assert.equal((await shown())[0], [...all].sort().at(-1));
    await page.evaluate(() => { for (const one of document.querySelectorAll("details")) one.open = true; });
    assert.match(await text(page, ".groups pre"), /> 0x[0-9a-f]+ .*\n +\^+/);
    await close(page);
  }

  // Without script: the first state, all findings, no controls.
  for (const name of ["case", "verify"]) {
    const page = await open(name, { script: false });
    await page.screenshot({ path: path.join(shots, `${name}-without-script.png`), fullPage: true });
    await page.setJavaScriptEnabled(true);
    await close(page);
    const html = fs.readFileSync(path.join(folder, `${name}.html`), "utf8");
    assert.match(html, name === "case" ? /id="state-heading">Instruction 11: / : /US503/);
    assert.match(html, name === "case" ? /id="controls" hidden/ : /id="filter-box" hidden/);
  }

  // A script that gets into a page does not run.
  {
    const html = fs.readFileSync(path.join(folder, "case.html"), "utf8");
    const evil = "<script>document.title='evil'</script><b id=evil onclick=\"document.title='evil'\">x</b>";
    fs.writeFileSync(path.join(folder, "evil.html"), html.replace("<h2>Verdicts", `${evil}<h2>Verdicts`));
    const page = await open("evil");
    await page.click("#evil");
    assert.notEqual(await page.title(), "evil");
    assert.ok(page.faults.length >= 2 && page.faults.every((fault) => /Content Security Policy/.test(fault)),
      page.faults.join("\n"));
    await page.close();
  }

  // Printed: no controls, details open.
  {
    const page = await open("verify");
    await page.emulateMediaType("print");
    assert.equal(await page.$eval("#filter-box", (box) => getComputedStyle(box).display), "none");
    await page.pdf({ path: path.join(shots, "verify.pdf") });
    await close(page);
  }
  await browser.close();
  console.log("all passed");
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
