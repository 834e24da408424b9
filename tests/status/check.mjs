// Opens the status page as a desktop, a phone and a dark desktop, and reports what is wrong with it.
import fs from 'node:fs';
import { createRequire } from 'node:module';
import puppeteer from 'puppeteer-core';

const [url, folder] = process.argv.slice(2);
const axe = fs.readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
// As root, for example in a container, Chromium has no sandbox.
const args = ['--disable-gpu', ...(process.getuid() === 0 ? ['--no-sandbox'] : [])];
const browser = await puppeteer.launch({ executablePath: process.env.CHROMIUM, args });
let found = 0;
for (const [name, width, height, scheme] of [['desktop', 1280, 900, 'light'], ['phone', 390, 844, 'light'], ['dark', 1280, 900, 'dark']]) {
  const page = await browser.newPage();
  const problems = [];
  page.on('pageerror', (error) => problems.push(`error: ${error.message}`));
  page.on('console', (message) => { if (['error', 'warn'].includes(message.type())) problems.push(message.text()); });
  await page.setViewport({ width, height });
  await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: scheme }]);
  await page.goto(url);
  await page.waitForFunction(() => document.getElementById('live').textContent === 'live', { timeout: 20000 });
  const excess = () => page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  if (await excess() > 0) problems.push(`scrolls sideways by ${await excess()} pixels`);
  await page.screenshot({ path: `${folder}/${name}.png`, fullPage: true });
  await page.evaluate(() => { document.getElementById('as-table').open = true; });
  await page.waitForSelector('#resource-table table');
  await page.evaluate(axe);
  const result = await page.evaluate(() => window.axe.run());
  for (const violation of result.violations) {
    problems.push(...violation.nodes.map((node) => `axe ${violation.id}: ${node.target.join(' ')}: ${node.failureSummary}`));
  }
  // By keyboard: the skip link first, then the button, which pauses the page.
  await page.evaluate(() => { document.activeElement.blur(); scrollTo(0, 0); });
  await page.focus('#pause');
  await page.keyboard.press('Enter');
  const live = await page.$eval('#live', (element) => element.textContent);
  if (live !== 'paused') problems.push(`the button pauses nothing: ${live}`);
  found += problems.length;
  console.log(`${name}: ${problems.length ? problems.join('\n  ') : `nothing found, ${result.passes.length} rules of axe-core pass`}`);
  await page.close();
}
await browser.close();
process.exit(found ? 1 : 0);
