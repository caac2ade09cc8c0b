/** One tooltip for the whole page: an element with data-from shows where its number comes from. */

let box = null;

function show(target) {
  box.textContent = target.dataset.from;
  box.hidden = false;
  const place = target.getBoundingClientRect();
  const left = Math.min(Math.max(8, place.left), innerWidth - box.offsetWidth - 8);
  const above = place.top - box.offsetHeight - 6;
  box.style.left = `${left}px`;
  box.style.top = `${above > 4 ? above : place.bottom + 6}px`;
  if (target === document.activeElement) target.setAttribute('aria-describedby', 'tip');
}

function hide() {
  box.hidden = true;
}

export function installTips() {
  box = Object.assign(document.createElement('div'), { id: 'tip', hidden: true });
  box.setAttribute('role', 'tooltip');
  document.body.append(box);
  const react = ({ target }) => {
    const found = target instanceof Element && target.closest('[data-from]');
    if (found?.dataset.from) show(found);
    else hide();
  };
  document.addEventListener('pointerover', react);
  document.addEventListener('focusin', react);
  document.addEventListener('focusout', hide);
  document.addEventListener('keydown', (event) => event.key === 'Escape' && hide());
  addEventListener('scroll', hide, { passive: true, capture: true });
}
