package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"
)

// ledger is the state that one informer's handlers were given: the objects that a
// program would hold from the calls alone, and each time an object's version went back.
type ledger struct {
	mu     sync.Mutex
	held   map[string]identity
	newest map[string]uint64 // also of deleted objects
	back   []string          // the first few
}

// identity is an object's uid and resource version.
type identity [2]string

const backMax = 5

func identify(o any) (string, identity) {
	m, err := meta.Accessor(o)
	fatal(err)
	return m.GetNamespace() + "/" + m.GetName(), identity{string(m.GetUID()), m.GetResourceVersion()}
}

// told records one call of a handler. The deletion of a tombstone was not observed,
// so its object is the last known state.
func (l *ledger) told(what string, o any) {
	if !*keepLedger {
		return
	}
	if t, ok := o.(cache.DeletedFinalStateUnknown); ok {
		what, o = "gone", t.Obj
	}
	key, id := identify(o)
	version, err := strconv.ParseUint(id[1], 10, 64)
	fatal(err)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil {
		l.held, l.newest = map[string]identity{}, map[string]uint64{}
	}
	if version < l.newest[key] && len(l.back) < backMax {
		l.back = append(l.back, fmt.Sprintf("%s %s at %d after %d", what, key, version, l.newest[key]))
	}
	l.newest[key] = max(l.newest[key], version)
	if what == "gone" || what == "delete" {
		delete(l.held, key)
	} else {
		l.held[key] = id
	}
}

// tell prints the store by identities, the state from the handlers, and the whole
// objects on request.
func (c *client) tell(whole bool) map[string]any {
	held, bodies := map[string]identity{}, map[string]any{}
	for _, o := range c.informer.GetStore().List() {
		key, id := identify(o)
		held[key] = id
		if whole {
			bodies[key] = o
		}
	}
	c.ledger.mu.Lock()
	told, err := json.Marshal(c.ledger.held) // before the lock is released
	fatal(err)
	back := append([]string{}, c.ledger.back...)
	c.ledger.mu.Unlock()
	answer := map[string]any{"synced": c.nowSynced.Load(), "objects": held, "told": json.RawMessage(told), "back": back,
		"lists": c.lists.Load() + c.watchLists.Load(), "watchLists": c.watchLists.Load(), "watches": c.watches.Load(),
		"errors": c.transport.Load(), "refused": c.expired.Load() + c.throttled.Load() + c.failed.Load(), "protocols": c.protocols()}
	if whole {
		answer["whole"] = bodies
	}
	return answer
}

// contents is the response to "ids" and "whole".
func contents(clients []*client, whole bool) map[string]any {
	told := map[string]any{}
	for _, c := range clients {
		told[strconv.Itoa(c.id)] = c.tell(whole)
	}
	return map[string]any{"event": "contents", "clients": told}
}
