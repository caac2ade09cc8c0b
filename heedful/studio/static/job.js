/**
 * Work that takes long: jobs of the server, and streams of events. What came is kept like any other answer, so
 * that a page that is opened again, or exported, shows it without asking.
 */
import { hooks } from './html.js';
import { events, json, keepJson, keptJson, recorded, sentence } from './api.js';

const IDLE = { state: 'idle', events: [], progress: null, result: null, error: '' };

/** The state after one more event of a job. */
function next(old, data) {
  const seen = { ...old, progress: data.progress ?? old.progress };
  if (data.over) return { ...seen, state: data.state, error: data.message ?? '' };
  if (data.result || data.partial) return { ...seen, result: data.result ?? data.partial };
  return { ...seen, events: [...old.events, data] };
}

/**
 * A job: {kind, run, ...} as POST /api/jobs takes it. It begins when start() is called, and ends with its page or
 * by stop(). A job with the same fields that is done is not done again, unless start(true) is called.
 * @param {object | null} body
 * @returns {{state: 'idle' | 'running' | 'done' | 'failed' | 'cancelled', events: object[], progress: object | null,
 *   result: any, error: string, start: (again?: boolean) => void, stop: () => void}}
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
      for await (const { data } of events(`/api/jobs/${made.id}/events`, { signal })) {
        if (!data) continue;
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

/**
 * The events of a POST that streams, from the moment there is a body; another body ends the one before.
 * @returns {{events: object[], done: any, busy: boolean, error: string}} done: what the last event said
 */
export function useStream(path, body) {
  const key = body ? `POST ${path} ${JSON.stringify(body)}` : '';
  const [state, setState] = hooks.useState({ events: [], done: null, busy: false, error: '' });
  hooks.useEffect(() => {
    const kept = key ? keptJson(key) : { events: [], done: null };
    const control = new AbortController();
    const settle = (now) => control.signal.aborted || setState(now);
    const follow = async () => {
      const seen = [];
      let done = null;
      settle({ events: [], done, busy: true, error: '' });
      try {
        for await (const { data } of events(path, { body, signal: control.signal })) {
          if (data?.error) throw Object.assign(new Error(data.error.message), { readable: true });
          if (data?.done) done = data.done;
          else if (data) seen.push(data);
          settle({ events: [...seen], done, busy: true, error: '' });
        }
        if (done) keepJson(key, { events: seen, done });
        settle({ events: seen, done, busy: false, error: '' });
      } catch (error) {
        settle({ events: seen, done, busy: false, error: sentence(error) });
      }
    };
    if (kept) setState({ ...kept, busy: false, error: '' });
    else follow();
    return () => control.abort();
  }, [key]);
  return state;
}
