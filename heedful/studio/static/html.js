/** htm bound to Preact, and the hooks, in one place. */
import { h, render, Fragment } from './vendor/preact.js';
import { useState, useEffect, useLayoutEffect, useRef, useMemo, useCallback, useId } from './vendor/hooks.js';
import { htm } from './vendor/htm.js';

export const html = htm.bind(h);
export const hooks = { useState, useEffect, useLayoutEffect, useRef, useMemo, useCallback, useId };
export const dom = { render, Fragment };

/** The width of an element in CSS pixels, followed as it changes. */
export function useWidth(ref, first = 0) {
  const [width, setWidth] = useState(first);
  useLayoutEffect(() => {
    if (!ref.current) return undefined;
    const measure = () => setWidth(Math.floor(ref.current?.clientWidth ?? 0));
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(ref.current);
    return () => observer.disconnect();
  }, []);
  return width;
}

/** "dark" or "light", followed as it changes. */
export function useTheme() {
  const [name, setName] = useState(theme());
  useEffect(() => {
    const change = () => setName(theme());
    const media = matchMedia('(prefers-color-scheme: dark)');
    media.addEventListener('change', change);
    addEventListener('studio-theme', change);
    return () => {
      media.removeEventListener('change', change);
      removeEventListener('studio-theme', change);
    };
  }, []);
  return name;
}

export function theme() {
  const chosen = document.documentElement.dataset.theme;
  return chosen || (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light');
}

/** Choose "light", "dark" or "" (as the system has it). */
export function setTheme(name) {
  if (name) document.documentElement.dataset.theme = name;
  else delete document.documentElement.dataset.theme;
  try {
    localStorage.setItem('studio-theme', name);
  } catch {
    // a page without storage forgets the choice
  }
  dispatchEvent(new Event('studio-theme'));
}

export function firstTheme() {
  try {
    return localStorage.getItem('studio-theme') || '';
  } catch {
    return '';
  }
}
