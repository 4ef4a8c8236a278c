// Loads pages one after another in Chromium, each in a profile of its own, and writes what it saw as JSON.
//
//   node load.cjs JOB.json
//
// The job: `tools` (where to look for playwright-core), `chromium`, `arguments`, `urls`, `pause_ms`, `pictures` (a directory for a
// picture of each page, or null), `output`. It says `ready` on standard error when the browser is up; that nothing but the pages is
// fetched is the arguments' business.
'use strict';
const fs = require('fs');

const job = JSON.parse(fs.readFileSync(process.argv[2], 'utf8'));

function playwright() {
  try {
    return require('playwright-core');
  } catch {
    return require(require.resolve('playwright-core', { paths: [job.tools] }));
  }
}

// In the page: its times from the start of navigation on, and what came.
function measure() {
  const navigation = performance.getEntriesByType('navigation')[0];
  const resources = performance.getEntriesByType('resource').filter((entry) => entry.name.startsWith('https:'));
  const came = [navigation, ...resources];
  const paint = performance.getEntriesByName('first-contentful-paint')[0];
  return {
    load_ms: navigation.loadEventEnd - navigation.startTime,
    paint_ms: paint ? paint.startTime - navigation.startTime : null,
    // Pages are not told how others' servers answered; the bytes of an error page would be too few.
    objects: came.filter((entry) => entry.encodedBodySize > 0).length,
    bytes: came.reduce((sum, entry) => sum + entry.encodedBodySize, 0),
    protocols: [...new Set(came.map((entry) => entry.nextHopProtocol))].sort(),
    late: resources.filter((entry) => entry.responseEnd > navigation.loadEventEnd).length,
  };
}

async function load(browser, url, picture) {
  const context = await browser.newContext();
  try {
    const page = await context.newPage();
    await page.goto(url, { waitUntil: 'load', timeout: 0 });
    await page.waitForFunction(() => performance.getEntriesByType('navigation')[0].loadEventEnd > 0);
    // Nothing to see after all this time is a page without a figure, not a failure.
    const painted = () => performance.getEntriesByName('first-contentful-paint').length > 0;
    await page.waitForFunction(painted, null, { timeout: 5000 }).catch(() => {});
    const seen = await page.evaluate(measure);
    if (picture) await page.screenshot({ path: picture, fullPage: true });
    return seen;
  } finally {
    await context.close();
  }
}

async function main() {
  const { chromium } = playwright();
  const browser = await chromium.launch({ executablePath: job.chromium, args: job.arguments });
  const loads = [];
  try {
    // What Chromium reads from the disk, it has read before the first load.
    const context = await browser.newContext();
    const page = await context.newPage();
    await page.goto('data:text/html,<h1>up</h1>');
    await context.close();
    process.stderr.write('ready\n');
    for (const url of job.urls) {
      if (loads.length > 0) await new Promise((resolve) => setTimeout(resolve, job.pause_ms));
      const picture = job.pictures && `${job.pictures}/${loads.length + 1}.png`;
      loads.push(await load(browser, url, picture));
    }
  } finally {
    await browser.close();
  }
  return { loads };
}

main()
  .catch((error) => ({ error: String(error.message || error).split('\n')[0] }))
  .then((result) => fs.writeFileSync(job.output, JSON.stringify(result)));
