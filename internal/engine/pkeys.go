package engine

// PKeysChanged makes every QP use the present P_Key tables of Config.Ports. A QP whose Modify runs at the same time
// reads them itself.
func (e *Engine) PKeysChanged() {
	for _, s := range e.running() {
		s.hold()
		for qp := range e.qps.all() {
			if e.shardOf(qp.Num) == s {
				qp.LoadPKeys()
			}
		}
		s.release()
	}
}
