export function start(opened, story) {
  document.getElementById('status').textContent = 'ready';
  return opened;
}
