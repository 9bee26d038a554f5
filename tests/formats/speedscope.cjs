// Imports files with speedscope's own importer and prints what it found, a line of JSON for each:
//
//   node speedscope.cjs FOLDER FILE..
//
// FOLDER is that of the npm package. It has no interface for this: the page's script is run without a
// page, up to where it would draw, and the function behind `loadFileFromBase64` is taken out of it.
'use strict';
const fs = require('fs');
const path = require('path');

const [folder, ...files] = process.argv.slice(2);
const release = path.join(folder, 'dist', 'release');
const name = fs.readdirSync(release).find((file) => /^speedscope-.*\.js$/.test(file));
let script = fs.readFileSync(path.join(release, name), 'utf8');

const importer = /loadFileFromBase64:\((\w+),(\w+)\)=>\{this\.loadProfile\(\(\)=>(\w+)\(\1,\2\)\)\}/.exec(script);
const drawing = /console\.log\(`speedscope v[^;]*;/.exec(script);
if (!importer || !drawing) throw new Error('this version of speedscope is not known');
script = script.slice(0, drawing.index) + `globalThis.importFile = ${importer[3]};})();`;

// What the script touches while it is read.
const nothing = new Proxy(function () {}, {
  get: (_, key) => (key === Symbol.toPrimitive ? () => '' : nothing),
  set: () => true,
  apply: () => nothing,
  construct: () => nothing,
});
globalThis.window = { location: { hash: '', search: '', href: '', pathname: '' }, addEventListener() {}, matchMedia: () => nothing, localStorage: nothing };
globalThis.document = nothing;
globalThis.localStorage = nothing;
globalThis.matchMedia = () => nothing;
const log = console.log;
console.log = () => {};
(0, eval)(script);

async function main() {
  for (const file of files) {
    const base64 = fs.readFileSync(file).toString('base64');
    const group = await globalThis.importFile(path.basename(file), base64);
    const profiles = group.profiles.map((profile) => {
      // Stacks with their weights, as the flame chart has them.
      const stacks = [];
      const open = [];
      let before = 0;
      const pass = (value) => {
        if (value > before) stacks.push([open.join(';'), value - before]);
        before = value;
      };
      profile.forEachCall(
        (node, value) => { pass(value); open.push(node.frame.name.replace(/;/g, ':')); },
        (_, value) => { pass(value); open.pop(); },
      );
      pass(profile.getTotalWeight());
      return { name: profile.getName(), unit: profile.getWeightUnit(), total: profile.getTotalWeight(), stacks };
    });
    log(JSON.stringify({ name: group.name, profiles }));
  }
}
main().catch((error) => { console.error(error); process.exit(1); });
