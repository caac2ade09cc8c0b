/** Jobs of the server, and streams of events. What came is kept, for a page that is opened again or exported. */
import { hooks } from './html.js';
import { events, json, keepJson, keptJson, recorded, sentence, trouble } from './api.js';

const IDLE = { state: 'idle', events: [], progress: null, result: null, error: '' };

/** The state after one more event of a job. */
function next(old, data) {
  const seen = { ...old, progress: data.progress ?? old.progress };
  if (data.over) return { ...seen, state: data.state, error: data.message ?? '' };
  if (data.result || data.partial) return { ...seen, result: data.result ?? data.partial };
  return { ...seen, events: [...old.events, data] };
}

/**
 * A job: {kind, run, ...} as POST /api/jobs takes it, or null. start() begins it; its page or stop() ends it. A job
 * that is done is not done again, unless by start(true). Its state is idle, running, done, failed or cancelled.
 */
export function useJob(body) {
  const key = body ? `JOB ${JSON.stringify(body)}` : '';
  const [job, setJob] = hooks.useState(IDLE);
  const running = hooks.useRef(null);
  const stop = () => {
    const { control, id } = running.current ?? {};
    running.current = null;
    control?.abort();
    if (id) json(`/api/jobs/${id}`, { method: 'DELETE', body: {} }).catch(() => {});
  };
  hooks.useEffect(() => {
    setJob((key && keptJson(key)) || IDLE);
    return stop;
  }, [key]);
  async function start(again = false) {
    const kept = !again && keptJson(key);
    if (kept || recorded) {
      if (kept) setJob(kept);
      return;
    }
    stop();
    const mine = { control: new AbortController(), id: '' };
    running.current = mine;
    const { signal } = mine.control;
    let seen = { ...IDLE, state: 'running' };
    setJob(seen);
    try {
      const made = await json('/api/jobs', { body, method: 'POST', signal });
      mine.id = made.id;
      for await (const data of events(`/api/jobs/${made.id}/events`, { signal })) {
        seen = next(seen, data);
        setJob(seen);
      }
      mine.id = '';
      if (seen.state === 'done') keepJson(key, seen);
    } catch (error) {
      if (!signal.aborted) setJob({ ...seen, state: 'failed', error: sentence(error) });
    }
  }
  const cancel = () => {
    stop();
    setJob({ ...IDLE, state: 'cancelled' });
  };
  return { ...job, start, stop: cancel };
}

/** {events, done, busy, error} of a POST that streams; `done` is what the last event said. Another body ends the one before. */
export function useStream(path, body) {
  const key = body ? `POST ${path} ${JSON.stringify(body)}` : '';
  const [state, setState] = hooks.useState({ events: [], done: null });
  hooks.useEffect(() => {
    const kept = key ? keptJson(key) : { events: [], done: null };
    const control = new AbortController();
    const settle = (now) => control.signal.aborted || setState(now);
    const follow = async () => {
      const seen = [];
      let done = null;
      settle({ events: [], done, busy: true });
      try {
        for await (const data of events(path, { body, signal: control.signal })) {
          if (data.error) throw trouble(data.error.message);
          if (data.done) done = data.done;
          else seen.push(data);
          settle({ events: [...seen], done, busy: true });
        }
        if (done) keepJson(key, { events: seen, done });
        settle({ events: seen, done });
      } catch (error) {
        settle({ events: seen, done, error: sentence(error) });
      }
    };
    if (kept) setState(kept);
    else follow();
    return () => control.abort();
  }, [key]);
  return state;
}
