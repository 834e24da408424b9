// Opens the status page in every state (states.mjs), as a desktop, a phone and a dark desktop, or the page of a gateway if its address is
// given; reports what is wrong, and what the page does not do that people rely on.
import fs from 'node:fs';
import { createRequire } from 'node:module';
import puppeteer from 'puppeteer-core';
import { serve, STATES } from './states.mjs';

const [pageFile, folder, gateway, name = 'gateway'] = process.argv.slice(2);
const axe = fs.readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
// As root, for example in a container, Chromium has no sandbox.
const args = ['--disable-gpu', ...(process.getuid() === 0 ? ['--no-sandbox'] : [])];
const browser = await puppeteer.launch({ executablePath: process.env.CHROMIUM, args });
const VIEWS = [['desktop', 1280, 900, 'light'], ['phone', 390, 844, 'light'], ['dark', 1280, 900, 'dark']];
const WAIT = { timeout: 20_000 };
let found = 0;

function report(name, problems, well) {
  found += problems.length;
  console.log(`${name}: ${problems.length ? problems.join('\n  ') : well}`);
}

async function open(url, [, width, height, scheme] = VIEWS[0], problems = []) {
  const page = await browser.newPage();
  page.on('pageerror', (error) => problems.push(`error: ${error.message}`));
  page.on('dialog', (dialog) => { problems.push(`a client's name runs as script: ${dialog.message()}`); dialog.dismiss(); });
  // What the network does is not the page's fault.
  page.on('console', (message) => { if (['error', 'warn'].includes(message.type()) && !message.text().startsWith('Failed to load')) problems.push(message.text()); });
  await page.setViewport({ width, height });
  await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: scheme }]);
  await page.goto(url);
  return page;
}
const text = (page, id) => page.$eval(`#${id}`, (element) => element.textContent);
const live = (page) => page.waitForFunction(() => document.getElementById('live').textContent === 'live', WAIT);

async function inspect(page, problems) {
  await page.evaluate(() => { document.getElementById('as-table').open = true; });
  await page.waitForSelector('#resource-table table', { timeout: 5_000 }).catch(() => {});
  const excess = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  if (excess > 0) problems.push(`scrolls sideways by ${excess} pixels`);
  await page.evaluate(axe);
  const result = await page.evaluate(() => window.axe.run());
  for (const violation of result.violations) {
    problems.push(...violation.nodes.map((node) => `axe ${violation.id}: ${node.target.join(' ')}: ${node.failureSummary}`));
  }
  return `nothing found, ${result.passes.length} rules of axe-core pass`;
}

async function look(name, url, view) {
  const problems = [];
  const page = await open(url, view, problems);
  await live(page);
  await page.screenshot({ path: `${folder}/${name}-${view[0]}.png`, fullPage: true });
  const well = await inspect(page, problems);
  if (await page.$('img, iframe, main script')) problems.push('a client’s name has become markup');
  report(`${name}, ${view[0]}`, problems, well);
  await page.close();
}

// Each check gets a page and its server; it returns what is wrong.
const CHECKS = {
  async 'a lost connection is said, since when, and the old numbers stay'(page, server) {
    await live(page);
    server.drop();
    await page.waitForSelector('#lost:not([hidden])', WAIT);
    await page.screenshot({ path: `${folder}/lost-desktop.png`, fullPage: true });
    const problems = [], said = await text(page, 'lost');
    await inspect(page, problems);
    if (!/lost since \d\d:\d\d:\d\d/.test(said) || !said.includes('port-forward')) problems.push(said);
    if (!(await text(page, 'resources')).includes('pods.v1')) problems.push('the numbers are gone');
    return problems;
  },
  async 'when there are too many viewers, the document is asked for'(page) {
    await live(page);
    return (await text(page, 'resources')).includes('pods.v1') ? [] : ['no resources'];
  },
  async 'a refusal is shown with its reason'(page) {
    await page.waitForFunction(() => document.getElementById('lost').textContent.includes('too many people'), WAIT);
    return (await text(page, 'lost')).includes('403') ? [] : ['no status code'];
  },
  async 'the keyboard reaches everything, shows where it is, and gets out again'(page) {
    await live(page);
    const problems = [], reached = new Set();
    await page.evaluate(() => { document.getElementById('as-table').open = true; });
    await page.waitForSelector('#resource-table table', WAIT);
    const all = await page.evaluate(() => {
      window.reachable = [...document.querySelectorAll('a, button:not([hidden]), input, select, summary, [tabindex="0"]')];
      return window.reachable.length;
    });
    for (let at = 0; at <= all; at += 1) {
      await page.keyboard.press('Tab');
      const one = await page.evaluate(() => {
        const style = getComputedStyle(document.activeElement);
        return { at: window.reachable.indexOf(document.activeElement), isBody: document.activeElement === document.body, visible: style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2 };
      });
      if (one.isBody) break;
      if (!one.visible) problems.push(`no focus to be seen at ${one.at}`);
      reached.add(one.at);
    }
    if (reached.size < all) problems.push(`${reached.size} of ${all} reached`);
    if (await page.evaluate(() => document.activeElement.tagName) !== 'BODY') await page.keyboard.press('Tab');
    if (await page.evaluate(() => document.activeElement.tagName) !== 'BODY') problems.push('no way out');
    await page.focus('#pause');
    await page.keyboard.press('Enter');
    if (await text(page, 'live') !== 'paused') problems.push('the button pauses nothing');
    return problems;
  },
  async 'new documents move neither the focus nor the selection, and are not read aloud'(page) {
    await live(page);
    await page.evaluate(() => {
      document.querySelector('#slow .scroll').focus();
      getSelection().selectAllChildren(document.querySelector('#slow bdi'));
      window.spoken = 0;
      new MutationObserver(() => { window.spoken += 1; }).observe(document.getElementById('spoken'), { childList: true, characterData: true, subtree: true });
    });
    const before = await page.evaluate(() => latest.at);
    await page.waitForFunction((at) => latest.at > at + 3_000, WAIT, before);
    const problems = [];
    if (await page.evaluate(() => document.activeElement.className) !== 'scroll') problems.push('the focus is gone');
    if (await page.evaluate(() => getSelection().toString()) === '') problems.push('the selection is gone');
    if (await page.evaluate(() => window.spoken) > 1) problems.push('the live region chatters');
    return problems;
  },
  async 'the filter finds a slow client and its resource, and is in the address'(page) {
    await live(page);
    await page.type('#filter', 'JANE');
    const shown = await page.$$eval('#resources h3', (list) => list.map((one) => one.textContent));
    const rows = await page.$$eval('#slow tbody tr', (list) => list.length);
    const problems = shown.join() === 'pods.v1' && rows === 2 ? [] : [`${shown}; ${rows} rows`];
    const again = await open(page.url());
    await live(again);
    if (await again.$eval('#filter', (input) => input.value) !== 'JANE') problems.push(`not kept in ${page.url()}`);
    await again.close();
    await page.select('#sort', 'name');
    await page.$eval('#filter', (input) => { input.value = ''; input.dispatchEvent(new Event('input')); });
    const sorted = await page.$$eval('#resources h3', (list) => list.map((one) => one.textContent));
    if (sorted.join() !== 'configmaps.v1,deployments.v1.apps,pods.v1') problems.push(`sorted: ${sorted}`);
    return problems;
  },
  async 'of many resources, those that need attention are shown, and all if asked'(page, server) {
    server.show('many');
    await page.waitForFunction(() => document.querySelectorAll('#resources section').length >= 12, WAIT);
    const before = await page.$$eval('#resources section', (list) => list.length);
    await page.click('#all');
    const after = await page.$$eval('#resources section', (list) => list.length);
    return before === 12 && after === 40 ? [] : [`${before}, then ${after}`];
  },
  async 'clients in their initial events are not called up to date, and the groups add up'(page, server) {
    server.show('initial');
    const label = '140 clients, 128 up to date (1 waiting for a future version), 12 less than 5 s behind; 12 of them receiving initial events or catching up';
    await page.waitForFunction((label) => document.getElementById('resources').textContent.includes(label), WAIT, label);
    const verdict = await text(page, 'verdict');
    return verdict.startsWith('✓ No client is slow.') && verdict.includes('12 clients are receiving initial events or catching up.') ? [] : [verdict];
  },
  async 'a selection of the slow clients says of how many'(page, server) {
    server.show('many');
    const caption = /: groups with [\d,]+ of [\d,]+ slow clients.*30 of [\d,]+ slow clients, the longest wait first/s;
    await page.waitForFunction(() => document.getElementById('slow').textContent.includes('30 of'), WAIT);
    const captions = await page.$$eval('#slow caption', (list) => list.map((one) => one.textContent));
    return caption.test(captions.join('\n')) ? [] : captions;
  },
  async 'one thing is not named in the plural'(page, server) {
    server.show('one');
    await page.waitForFunction(() => document.getElementById('verdict').textContent.includes('The only client is slow.'), WAIT);
    await page.type('#filter', 'pods');
    const seen = await page.$eval('main', (main) => main.innerText);
    const plurals = seen.match(/(?<![\d,.])1 (more )?(slow )?(checks|clients|events|objects|resources|watches).*/g) || [];
    const parts = ['1 object (', '1 event, ', '1 event/s, ', '1 of 1 resource', '1 more check of /readyz fails.', '1 more resource with fewer clients is not shown.', 'The only slow client', '1 client was cut'];
    return [...plurals, ...parts.filter((part) => !seen.includes(part)).map((part) => `no "${part}"`)];
  },
  async 'what a shadow has found is shown while there is one'(page, server) {
    await live(page);
    const problems = (await text(page, 'totals')).includes('Shadow') ? ['shown without a shadow'] : [];
    server.show('shadow');
    const shown = 'Shadow: differences43 missing, 1 content, 1,234,567 equal, 4,321 not comparable';
    await page.waitForFunction(() => document.getElementById('totals').textContent.includes('Shadow'), WAIT);
    if (!(await text(page, 'totals')).includes(shown)) problems.push(await text(page, 'totals'));
    return problems;
  },
  async 'a slow client and a lost one are in picture, table and words'(page) {
    await live(page);
    const problems = [], label = await page.$eval('svg.track', (svg) => svg.getAttribute('aria-label'));
    for (const [kind, least] of [['path.slow', 2], ['path.endangered', 1], ['path.lost', 1]]) {
      const marks = await page.$$eval(`svg ${kind}`, (list) => list.length);
      if (marks < least) problems.push(`${marks} of ${kind}`);
    }
    if (!label.includes('4 slow (1 may be cut soon, 1 out of the history)')) problems.push(label);
    if (!(await text(page, 'slow')).includes('✕ out')) problems.push('not in the table');
    return problems;
  },
};
const REFUSALS = { 'when there are too many viewers, the document is asked for': 'events', 'a refusal is shown with its reason': 'all' };

if (gateway) {
  for (const view of VIEWS) await look(name, gateway, view);
} else {
  for (const state of Object.keys(STATES)) {
    for (const view of VIEWS) {
      const server = await serve(pageFile);
      server.show(state);
      await look(state, server.url, view);
      server.drop();
    }
  }
  for (const [what, check] of Object.entries(CHECKS)) {
    const server = await serve(pageFile);
    server.show('slow', REFUSALS[what]);
    const problems = [];
    const page = await open(server.url, VIEWS[0], problems);
    try {
      problems.push(...await check(page, server));
    } catch (error) {
      problems.push(String(error));
    }
    report(what, problems, 'yes');
    await page.close();
    server.drop();
  }
}
await browser.close();
process.exit(found ? 1 : 0);
