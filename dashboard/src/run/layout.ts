// Places for the nodes of a graph, from top to bottom.

import dagre from "@dagrejs/dagre";

export interface Placed {
  nodes: { name: string; x: number; y: number; width: number; height: number }[];
  edges: { from: string; to: string; points: { x: number; y: number }[]; label: { x: number; y: number } | null }[];
  width: number;
  height: number;
}

export interface Wanted {
  nodes: { name: string; width: number; height: number }[];
  edges: { from: string; to: string; label: number }[];
}

export function layout({ nodes, edges }: Wanted): Placed {
  const graph = new dagre.graphlib.Graph({ multigraph: true });
  graph.setGraph({ rankdir: "TB", nodesep: 34, ranksep: 46, edgesep: 18, marginx: 14, marginy: 14 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const node of nodes) graph.setNode(node.name, { width: node.width, height: node.height });
  edges.forEach((edge, i) => {
    if (graph.hasNode(edge.from) && graph.hasNode(edge.to)) graph.setEdge(edge.from, edge.to, { width: edge.label, height: edge.label ? 18 : 0, labelpos: "c" }, String(i));
  });
  dagre.layout(graph);
  const size = graph.graph() as { width?: number; height?: number };
  return {
    nodes: nodes.map((node) => {
      const { x, y } = graph.node(node.name) as { x: number; y: number };
      return { ...node, x, y };
    }),
    edges: edges.flatMap((edge, i) => {
      const placed = graph.edge(edge.from, edge.to, String(i)) as { points: { x: number; y: number }[]; x?: number; y?: number } | undefined;
      if (!placed) return [];
      return [{ from: edge.from, to: edge.to, points: placed.points, label: placed.x === undefined || placed.y === undefined ? null : { x: placed.x, y: placed.y } }];
    }),
    width: size.width ?? 0,
    height: size.height ?? 0,
  };
}
