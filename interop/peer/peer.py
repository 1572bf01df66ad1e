#!/usr/bin/env python3
"""The kernel's end of a verbs case: executes the runner's requests on rdma_rxe.

It reads one JSON request per line from standard input and answers each with one
line; package agent defines the requests. A failure is an answer with "error",
and with "errno" if there is one.
"""
import base64, errno, hashlib, json, signal, socket, sys, time
import pyverbs.enums as e
from pyverbs.addr import AH, AHAttr, GID, GlobalRoute
from pyverbs.cq import CQ, CompChannel
from pyverbs.device import Context
from pyverbs.mr import MR, MW, MWBindInfo
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.qp import QP, QPEx, QPAttr, QPCap, QPInitAttr, QPInitAttrEx
from pyverbs.srq import SRQ, SrqAttr, SrqInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

DEVICE = "rxe0"
TYPES = {"RC": e.IBV_QPT_RC, "UC": e.IBV_QPT_UC, "UD": e.IBV_QPT_UD}
MTUS = {256: 1, 512: 2, 1024: 3, 2048: 4, 4096: 5}
CAP_ATOMIC_WRITE = 1 << 40
ATOMIC_WRITE = 15  # IBV_WR_ATOMIC_WRITE, unknown to older versions of pyverbs
GID_INDEX = {0: 0, 4: 1, 6: 2}  # of rxe: link-local, IPv4, IPv6


class Session:
    """The objects of one case."""

    def __init__(self, r):
        self.type, self.gid_index = TYPES[r["type"]], GID_INDEX[r["family"]]
        self.ctx = Context(name=DEVICE)
        if r.get("place") and not self.ctx.query_device_ex().device_cap_flags_ex & CAP_ATOMIC_WRITE:
            raise PyverbsRDMAError("the device has no ATOMIC WRITE", errno.EOPNOTSUPP)
        self.pd = PD(self.ctx)
        self.mr = MR(self.pd, r["size"], r["access"])
        self.mr.write(bytes(r["size"]), r["size"])
        self.channel = CompChannel(self.ctx)
        self.scq = CQ(self.ctx, r["max_send"] * r["qps"] + 1, None, None, 0)
        self.rcq = CQ(self.ctx, r["max_recv"] * r["qps"] + 1, None, self.channel, 0)
        self.srq = None
        if r.get("srq"):
            self.srq = SRQ(self.pd, SrqInitAttr(SrqAttr(max_wr=r["max_recv"], max_sge=r["max_sge"])))
        cap = QPCap(max_send_wr=r["max_send"], max_recv_wr=0 if self.srq else r["max_recv"], max_send_sge=r["max_sge"],
                    max_recv_sge=r["max_sge"], max_inline_data=r.get("inline", 0))
        self.qp_access = r["qp_access"]
        self.qps, self.ahs, self.mws = [], {}, []
        for _ in range(r["qps"]):
            if r.get("place"):
                init = QPInitAttrEx(qp_type=self.type, scq=self.scq, rcq=self.rcq, cap=cap, sq_sig_all=0, pd=self.pd,
                                    comp_mask=e.IBV_QP_INIT_ATTR_PD | e.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
                                    send_ops_flags=e.IBV_QP_EX_WITH_RDMA_WRITE | e.IBV_QP_EX_WITH_ATOMIC_WRITE)
                self.qps.append(QPEx(self.ctx, init))
                continue
            init = QPInitAttr(qp_type=self.type, scq=self.scq, rcq=self.rcq, srq=self.srq, cap=cap, sq_sig_all=0)
            self.qps.append(QP(self.pd, init))

    def close(self):
        for o in [*self.ahs.values(), *self.mws, *self.qps, self.srq, self.scq, self.rcq, self.channel, self.mr,
                  self.pd, self.ctx]:
            if o is not None:
                o.close()

    def ah_attr(self, gid):
        gr = GlobalRoute(dgid=GID(gid), sgid_index=self.gid_index)
        gr.hop_limit = 64
        return AHAttr(gr=gr, is_global=1, port_num=1)

    def connect(self, r):
        a = QPAttr(port_num=1)
        a.sq_psn = r["sq_psn"]
        if self.type == e.IBV_QPT_UD:
            a.qkey = r["qkey"]
        else:
            a.qp_access_flags = self.qp_access
            a.path_mtu, a.dest_qp_num, a.rq_psn = MTUS[r["mtu"]], r["qpn"], r["rq_psn"]
            a.ah_attr = self.ah_attr(r["gid"])
        if self.type == e.IBV_QPT_RC:
            a.max_rd_atomic, a.max_dest_rd_atomic = r["rd_atomic"], r["dest_rd_atomic"]
            a.min_rnr_timer, a.timeout = r["rnr_timer"], r["timeout"]
            a.retry_cnt, a.rnr_retry = r["retry"], r["rnr_retry"]
        self.qps[r["qp"]].to_rts(a)

    def sges(self, wr):
        # pyverbs accepts no request without SGEs; an empty SGE is equivalent.
        return [SGE(self.mr.buf + off, n, self.mr.lkey) for off, n in wr.get("sge") or [(0, 0)]]

    def recv(self, r):
        target = self.srq or self.qps[r["qp"]]
        for wr in r["wrs"]:
            sg = self.sges(wr)
            target.post_recv(RecvWR(wr_id=wr["id"], num_sge=len(sg), sg=sg))

    def atomic_write(self, qp, wr):
        """Posts an ATOMIC_WRITE, which ibv_post_send does not support."""
        (off, n), = wr["sge"]
        qp.wr_start()
        qp.wr_id, qp.wr_flags = wr["id"], wr.get("flags", 0)
        qp.wr_atomic_write(wr["rkey"], wr["raddr"], self.mr.read(n, off))
        qp.wr_complete()

    def send(self, r):
        for wr in r["wrs"]:
            if wr["opcode"] == ATOMIC_WRITE:
                self.atomic_write(self.qps[r["qp"]], wr)
                continue
            sg, op = self.sges(wr), wr["opcode"]
            # pyverbs passes the field unchanged: immediate data are big-endian; the key to invalidate, which
            # shares the field, is in host byte order.
            imm = wr.get("inv", 0) if op == e.IBV_WR_SEND_WITH_INV else socket.htonl(wr.get("imm", 0))
            w = SendWR(wr_id=wr["id"], opcode=op, num_sge=len(sg), sg=sg, imm_data=imm, send_flags=wr.get("flags", 0))
            if op in (e.IBV_WR_ATOMIC_CMP_AND_SWP, e.IBV_WR_ATOMIC_FETCH_AND_ADD):
                w.set_wr_atomic(wr["rkey"], wr["raddr"], wr.get("compare_add", 0), wr.get("swap", 0))
            elif op in (e.IBV_WR_RDMA_WRITE, e.IBV_WR_RDMA_WRITE_WITH_IMM, e.IBV_WR_RDMA_READ):
                w.set_wr_rdma(wr["rkey"], wr["raddr"])
            elif self.type == e.IBV_QPT_UD:
                if wr["gid"] not in self.ahs:
                    self.ahs[wr["gid"]] = AH(self.pd, attr=self.ah_attr(wr["gid"]))
                w.set_wr_ud(self.ahs[wr["gid"]], wr["qpn"], wr["qkey"])
            self.qps[r["qp"]].post_send(w)

    def poll(self, r):
        cq, out, end = self.scq if r["cq"] == "send" else self.rcq, [], time.monotonic() + r["ms"] / 1000
        while len(out) < r["n"]:
            n, wcs = cq.poll(r["n"] - len(out))
            out += [dict(id=w.wr_id, status=w.status, opcode=w.opcode, len=w.byte_len, qpn=w.qp_num, src_qp=w.src_qp,
                         flags=w.wc_flags,
                         imm=socket.ntohl(w.imm_data) if w.wc_flags & e.IBV_WC_WITH_IMM else w.imm_data)
                    for w in wcs or []]
            if n == 0:
                if time.monotonic() > end:
                    break
                time.sleep(0.0005)
        return {"wcs": out}

    def event(self, r):
        def late(*_):
            raise TimeoutError
        signal.signal(signal.SIGALRM, late)
        signal.setitimer(signal.ITIMER_REAL, max(r["ms"], 1) / 1000)
        try:
            self.channel.get_cq_event(self.rcq)
            self.rcq.ack_events(1)
            return {"got": True}
        except (TimeoutError, PyverbsRDMAError):
            return {"got": False}
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def bind(self, r):
        """Binds a new memory window of type 2 to a part of the region through QP r["qp"]."""
        mw = MW(self.pd, e.IBV_MW_TYPE_2)
        self.mws.append(mw)
        w = SendWR(opcode=e.IBV_WR_BIND_MW, num_sge=0, sg=[], send_flags=e.IBV_SEND_SIGNALED)
        w.set_bind_wr(mw, MWBindInfo(self.mr, self.mr.buf + r["off"], r["len"], r["access"]))
        self.qps[r["qp"]].post_send(w)
        wcs = self.poll({"cq": "send", "n": 1, "ms": 5000})["wcs"]
        if not wcs or wcs[0]["status"] != e.IBV_WC_SUCCESS:
            raise RuntimeError("bind: %s" % wcs)
        return {"rkey": w.rkey if hasattr(w, "rkey") else mw.rkey}


session = None


def handle(r):
    global session
    op = r["op"]
    if op == "open":
        if session:
            session.close()
        session = Session(r)
        gid = session.ctx.query_gid(1, session.gid_index).gid
        return {"addr": session.mr.buf, "rkey": session.mr.rkey, "gid": gid, "qpns": [q.qp_num for q in session.qps]}
    if op == "close":
        old, session = session, None
        if old:
            old.close()
        return {}
    s = session
    if op == "put":
        data = base64.b64decode(r["data"])
        s.mr.write(data, len(data), r["off"])
        return {}
    if op == "get":
        return {"data": base64.b64encode(s.mr.read(r["len"], r["off"])).decode()}
    if op == "sum":
        return {"sum": hashlib.sha256(s.mr.read(r["len"], r["off"])).hexdigest()}
    if op == "arm":
        s.rcq.req_notify(bool(r.get("solicited")))
        return {}
    if op == "state":
        return {"state": s.qps[r["qp"]].query(e.IBV_QP_STATE)[0].qp_state}
    call = {"connect": s.connect, "recv": s.recv, "send": s.send, "poll": s.poll, "event": s.event, "bind": s.bind}
    return call[op](r) or {}


for line in sys.stdin:
    try:
        answer = handle(json.loads(line))
    except Exception as x:  # the runner judges failures
        answer = {"error": "%s: %s" % (type(x).__name__, x)}
        if isinstance(x, PyverbsRDMAError):
            answer["errno"] = getattr(x, "error_code", 0) or 0
    print(json.dumps(answer), flush=True)
