/** htm bound to Preact, and the hooks, in one place. */
import { h, render, Fragment } from './vendor/preact.js';
import { useState, useEffect, useLayoutEffect, useRef, useMemo, useId } from './vendor/hooks.js';
import { htm } from './vendor/htm.js';

export const html = htm.bind(h);
export const hooks = { useState, useEffect, useLayoutEffect, useRef, useMemo, useId };
export const dom = { render, Fragment };
const DARK = '(prefers-color-scheme: dark)';

/** The width of an element in CSS pixels, followed as it changes. */
export function useWidth(ref, first = 0) {
  const [width, setWidth] = useState(first);
  useLayoutEffect(() => {
    const { current } = ref;
    const measure = () => setWidth(Math.floor(current.clientWidth));
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(current);
    return () => observer.disconnect();
  }, []);
  return width;
}

/** Keys of the whole page, but not while somebody types; `act(event)` says whether the key was its own. */
export function useKeys(act) {
  useEffect(() => {
    const press = (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
      if (act(event)) event.preventDefault();
    };
    addEventListener('keydown', press);
    return () => removeEventListener('keydown', press);
  });
}

/** A view had a use for an event: neither the browser nor the page reacts to it. */
export function claim(event) {
  event.preventDefault();
  event.stopPropagation();
}

/** "dark" or "light", followed as it changes. */
export function useTheme() {
  const [name, setName] = useState(theme());
  useEffect(() => {
    const control = new AbortController();
    const change = () => setName(theme());
    matchMedia(DARK).addEventListener('change', change, control);
    addEventListener('studio-theme', change, control);
    return () => control.abort();
  }, []);
  return name;
}

export function theme() {
  return document.documentElement.dataset.theme || (matchMedia(DARK).matches ? 'dark' : 'light');
}

/** Choose "light" or "dark"; without a name, what was chosen before, or as the system has it. */
export function setTheme(name) {
  let chosen = name;
  try {
    if (name) localStorage.setItem('studio-theme', name);
    else chosen = localStorage.getItem('studio-theme');
  } catch {
    // a page without storage forgets the choice
  }
  if (chosen) document.documentElement.dataset.theme = chosen;
  dispatchEvent(new Event('studio-theme'));
}
